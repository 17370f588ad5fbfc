"""Log-probs straight from hidden states: logits of all tokens never exist at once.

K predicted tokens   k of a part   R rows of a part   D hidden size   V vocabulary
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from r1lit.policy.attention import autocast_dtype
from r1lit.policy.in_place import add_gradient, gradient_of, may_add_in_place


@dataclass(frozen=True, kw_only=True)
class AtOnce:
    """How much is worked on at once, by kind of device; on a CPU the last two fit its cache.

    A part of the tokens has ``logits`` numbers in its product with the head, but ``tokens`` at
    least, since the weight's gradient passes through memory once for each part. Of a product
    ``floats`` numbers at a time are in float32, and its gradient is added to ``weight_rows``.
    """

    logits: int
    tokens: int
    floats: int
    weight_rows: int


AT_ONCE = {
    "cpu": AtOnce(logits=1 << 23, tokens=256, floats=1 << 20, weight_rows=1 << 10),
    "cuda": AtOnce(logits=1 << 27, tokens=256, floats=1 << 25, weight_rows=1 << 15),
}


class LinearLogp(torch.autograd.Function):
    """log softmax(hidden @ weight.T / temperature) at the targets, and the entropy beside it.

    Logits are made for a part of the tokens at a time (``AtOnce``), and made again in the backward
    pass. The products run in the dtype of ``hidden_KD``; what comes after in float32, a few rows of
    a product at a time.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden_KD: Tensor, weight_VD: Tensor, target_K: Tensor, temperature: float
    ) -> tuple[Tensor, Tensor]:
        """Return log-probs (K) and entropies (K); the entropies carry no gradient."""
        ctx.temperature = temperature
        ctx.in_place = may_add_in_place(weight_VD)
        cast_VD = weight_VD.to(hidden_KD.dtype)
        logp_K, entropy_K, normaliser_K = (
            torch.empty(len(hidden_KD), device=hidden_KD.device) for _ in range(3)
        )
        for part, product_kV in _products(hidden_KD, cast_VD):
            for rows, product_RV in _rows(part, product_kV):
                logits_RV = _float(product_RV, temperature)
                greatest_R1 = logits_RV.amax(-1, keepdim=True)
                logits_RV.sub_(greatest_R1)
                chosen_R = logits_RV.gather(-1, target_K[rows, None]).squeeze(-1)
                exp_RV = logits_RV.exp()
                sum_R = exp_RV.sum(-1)
                log_sum_R = sum_R.log()
                # a logit of -inf has probability 0 and adds 0; autocast would round a dot product
                weighted_R = exp_RV.mul_(logits_RV.nan_to_num_(neginf=0.0)).sum(-1)
                logp_K[rows] = chosen_R - log_sum_R
                entropy_K[rows] = log_sum_R - weighted_R / sum_R
                normaliser_K[rows] = greatest_R1.squeeze(-1) + log_sum_R
        ctx.save_for_backward(hidden_KD, weight_VD, target_K, normaliser_K)
        ctx.mark_non_differentiable(entropy_K)
        return logp_K, entropy_K

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad_K: Tensor, _: Tensor
    ) -> tuple[Tensor | None, Tensor | None, None, None]:
        """Make the logits again: d logp / d logits = (onehot - softmax) / temperature."""
        hidden_KD, weight_VD, target_K, normaliser_K = ctx.saved_tensors
        cast_VD = weight_VD.to(hidden_KD.dtype)
        gradients = _Gradients(ctx, hidden_KD, weight_VD, in_place=ctx.in_place)
        for part, product_kV in _products(hidden_KD, cast_VD):
            for rows, product_RV in _rows(part, product_kV):
                logits_RV = _float(product_RV, ctx.temperature)
                grad_R1 = grad_K[rows, None].float() / ctx.temperature
                grad_RV = logits_RV.sub_(normaliser_K[rows, None]).exp_().mul_(-grad_R1)
                grad_RV.scatter_add_(-1, target_K[rows, None], grad_R1)
                product_RV.copy_(grad_RV)
            gradients.add(part, product_kV, hidden_KD, cast_VD)
        return gradients.hidden_KD, gradients.of_weight(weight_VD, ctx.in_place), None, None


class LinearCrossEntropy(torch.autograd.Function):
    """Summed cross-entropy of the targets under softmax(hidden @ weight.T).

    Its gradient is known but for a factor when the logits are there, so it is made of them at once
    and they are never made again: one of four products with the head is saved.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden_KD: Tensor, weight_VD: Tensor, target_K: Tensor, with_gradient: bool
    ) -> Tensor:
        """Return the sum, float32."""
        cast_VD = weight_VD.to(hidden_KD.dtype)
        loss = torch.zeros((), device=hidden_KD.device)
        ctx.save_for_backward(weight_VD)
        ctx.in_place = may_add_in_place(weight_VD)
        wanted = with_gradient and any(ctx.needs_input_grad[:2])
        ctx.gradients = _Gradients(ctx, hidden_KD, weight_VD) if wanted else None
        for part, product_kV in _products(hidden_KD, cast_VD):
            for rows, product_RV in _rows(part, product_kV):
                logits_RV = _float(product_RV)
                target_R1 = target_K[rows, None]
                logits_RV.sub_(logits_RV.amax(-1, keepdim=True))
                chosen_R1 = logits_RV.gather(-1, target_R1)
                exp_RV = logits_RV.exp_()
                sum_R1 = exp_RV.sum(-1, keepdim=True)
                loss += (sum_R1.log() - chosen_R1).sum()
                if ctx.gradients is not None:
                    grad_RV = exp_RV.div_(sum_R1)
                    grad_RV.scatter_add_(-1, target_R1, -torch.ones_like(sum_R1))
                    product_RV.copy_(grad_RV)
            if ctx.gradients is not None:
                ctx.gradients.add(part, product_kV, hidden_KD, cast_VD)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        """Scale what the forward pass has made.

        Raises:
            RuntimeError: the second time, when there is nothing left to scale.
        """
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:
            raise RuntimeError("linear_cross_entropy: its gradient can be taken once")
        (weight_VD,) = ctx.saved_tensors
        gradients.scale(grad)
        return gradients.hidden_KD, gradients.of_weight(weight_VD, ctx.in_place), None, None


class _Gradients:
    """Gradients of hidden states and, in float32, of the weight; None where none is asked for.

    ``in_place`` the latter is ``weight.grad`` itself.
    """

    def __init__(
        self, ctx: Any, hidden_KD: Tensor, weight_VD: Tensor, *, in_place: bool = False
    ) -> None:
        self.hidden_KD = torch.empty_like(hidden_KD) if ctx.needs_input_grad[0] else None
        self.weight_VD: Tensor | None = None
        if ctx.needs_input_grad[1]:
            self.weight_VD = (
                gradient_of(weight_VD)
                if in_place
                else torch.zeros_like(weight_VD, dtype=torch.float32)
            )

    def add(self, part: slice, grad_kV: Tensor, hidden_KD: Tensor, cast_VD: Tensor) -> None:
        """Take the gradient of a part's logits."""
        if self.hidden_KD is not None:
            torch.mm(grad_kV, cast_VD, out=self.hidden_KD[part])
        if self.weight_VD is not None:
            size = at_once(grad_kV.device).weight_rows
            for grad_kv, weight_vD in zip(
                grad_kV.split(size, dim=1), self.weight_VD.split(size), strict=True
            ):
                weight_vD += grad_kv.T @ hidden_KD[part]

    def scale(self, factor: Tensor) -> None:
        """Multiply both; rounded once."""
        if self.hidden_KD is not None:
            self.hidden_KD = self.hidden_KD.float().mul_(factor).to(self.hidden_KD.dtype)
        if self.weight_VD is not None:
            self.weight_VD.mul_(factor)

    def of_weight(self, weight_VD: Tensor, in_place: bool) -> Tensor | None:
        """Return the weight's gradient in its own dtype; ``in_place`` it is in ``weight.grad``."""
        if self.weight_VD is None:
            return None
        if not in_place:
            return self.weight_VD.to(weight_VD.dtype)
        if self.weight_VD is not weight_VD.grad:
            add_gradient(weight_VD, self.weight_VD)
        return None


def linear_logp(
    hidden_KD: Tensor, weight_VD: Tensor, target_K: Tensor, temperature: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Return float32 log-probs of the targets and entropies, each (K); see ``LinearLogp``.

    A temperature of 0 (greedy sampling) counts as 1.
    """
    hidden_KD = hidden_KD.to(autocast_dtype(hidden_KD.device, hidden_KD.dtype))
    return LinearLogp.apply(hidden_KD, weight_VD, target_K, temperature or 1.0)


def linear_cross_entropy(hidden_KD: Tensor, weight_VD: Tensor, target_K: Tensor) -> Tensor:
    """Return the cross-entropy summed over the targets, float32; see ``LinearCrossEntropy``."""
    hidden_KD = hidden_KD.to(autocast_dtype(hidden_KD.device, hidden_KD.dtype))
    return LinearCrossEntropy.apply(hidden_KD, weight_VD, target_K, torch.is_grad_enabled())


def at_once(device: torch.device) -> AtOnce:
    """Return how much to work on at once on a device."""
    return AT_ONCE.get(device.type, AT_ONCE["cuda"])


def token_parts(
    num_tokens: int, vocabulary: int, device: torch.device, copies: int = 1
) -> Iterator[slice]:
    """Yield parts of the tokens whose logits, ``copies`` times over, ``LinearLogp`` allows."""
    most = at_once(device)
    size = max(most.tokens, most.logits // vocabulary) // copies
    for start in range(0, num_tokens, size):
        yield slice(start, start + size)


def _products(hidden_KD: Tensor, cast_VD: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yield parts of the tokens, each with its product with the head (k, V), until the next."""
    buffer_kV: Tensor | None = None
    for part in token_parts(len(hidden_KD), len(cast_VD), hidden_KD.device):
        hidden_kD = hidden_KD[part]
        if buffer_kV is None:
            buffer_kV = hidden_kD.new_empty(len(hidden_kD), len(cast_VD))
        product_kV = buffer_kV[: len(hidden_kD)]
        torch.mm(hidden_kD, cast_VD.T, out=product_kV)
        yield part, product_kV


def _rows(part: slice, product_kV: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yield a few tokens of a part at a time, each with their rows of its product (R, V)."""
    size = max(1, at_once(product_kV.device).floats // product_kV.shape[1])
    start = part.start
    for product_RV in product_kV.split(size):
        yield slice(start, start + len(product_RV)), product_RV
        start += len(product_RV)


def _float(product_RV: Tensor, temperature: float = 1.0) -> Tensor:
    """Return logits in float32: the product's own memory where that is float32 already."""
    logits_RV = product_RV.float()
    return logits_RV if temperature == 1.0 else logits_RV.div_(temperature)
