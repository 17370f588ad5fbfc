"""Log-probs straight from hidden states: logits of all tokens never exist at once.

K predicted tokens   D hidden size   V vocabulary
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from r1lit.policy.attention import autocast_dtype
from r1lit.policy.in_place import add_gradient, gradient_of, may_add_in_place

LOGITS_AT_ONCE = {"cpu": 1 << 23, "cuda": 1 << 27}
TOKENS_AT_ONCE = 256  # or more: the weight's gradient passes through memory once for each part
ROWS_AT_ONCE = 8192  # of the weight, whose product of a part then need not leave the cache


class LinearLogp(torch.autograd.Function):
    """log softmax(hidden @ weight.T / temperature) at the targets, and the entropy beside it.

    Logits are made for as many tokens at a time as keep them within ``LOGITS_AT_ONCE`` numbers, but
    for ``TOKENS_AT_ONCE`` at least, and made again in the backward pass. The products run in the
    dtype of ``hidden_KD``, what comes after in float32.
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
        for part in _parts(hidden_KD, weight_VD):
            logits_kV = _logits(hidden_KD[part], cast_VD, temperature)
            chosen_k = logits_kV.gather(-1, target_K[part, None]).squeeze(-1)
            normaliser_k1 = logits_kV.logsumexp(-1, keepdim=True)
            probability_kV = (logits_kV - normaliser_k1).exp_()
            # a logit of -inf has probability 0 and adds 0; autocast would round a dot product
            expected_k = probability_kV.mul_(logits_kV.nan_to_num_(neginf=0.0)).sum(-1)
            normaliser_K[part] = normaliser_k1.squeeze(-1)
            logp_K[part] = chosen_k - normaliser_K[part]
            entropy_K[part] = normaliser_K[part] - expected_k
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
        for part in _parts(hidden_KD, weight_VD):
            logits_kV = _logits(hidden_KD[part], cast_VD, ctx.temperature)
            grad_k1 = grad_K[part, None].float() / ctx.temperature
            grad_kV = logits_kV.sub_(normaliser_K[part, None]).exp_().mul_(-grad_k1)
            grad_kV.scatter_add_(-1, target_K[part, None], grad_k1)
            gradients.add(part, grad_kV, hidden_KD, cast_VD)
        grad_VD = None if ctx.in_place else _cast(gradients.weight_VD, weight_VD.dtype)
        return gradients.hidden_KD, grad_VD, None, None


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
        ctx.gradients = _Gradients(ctx, hidden_KD, weight_VD) if with_gradient else None
        for part in _parts(hidden_KD, weight_VD):
            logits_kV = _logits(hidden_KD[part], cast_VD, 1.0)
            target_k1 = target_K[part, None]
            normaliser_k1 = logits_kV.logsumexp(-1, keepdim=True)
            loss += (normaliser_k1 - logits_kV.gather(-1, target_k1)).sum()
            if ctx.gradients is not None and any(ctx.needs_input_grad[:2]):
                grad_kV = logits_kV.sub_(normaliser_k1).exp_()
                grad_kV.scatter_add_(-1, target_k1, -torch.ones_like(normaliser_k1))
                ctx.gradients.add(part, grad_kV, hidden_KD, cast_VD)
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
        grad_KD, grad_VD = gradients.hidden_KD, gradients.weight_VD
        if grad_KD is not None:
            grad_KD = grad_KD.float().mul_(grad).to(grad_KD.dtype)
        if grad_VD is not None:
            grad_VD = grad_VD.mul_(grad)
            if ctx.in_place:
                add_gradient(weight_VD, grad_VD)
                return grad_KD, None, None, None
        return grad_KD, _cast(grad_VD, weight_VD.dtype), None, None


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
        grad_kV = grad_kV.to(hidden_KD.dtype)
        if self.hidden_KD is not None:
            torch.mm(grad_kV, cast_VD, out=self.hidden_KD[part])
        if self.weight_VD is not None:
            for grad_kv, weight_vD in zip(
                grad_kV.split(ROWS_AT_ONCE, dim=1), self.weight_VD.split(ROWS_AT_ONCE), strict=True
            ):
                weight_vD += grad_kv.T @ hidden_KD[part]


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


def token_parts(
    num_tokens: int, vocabulary: int, device: torch.device, copies: int = 1
) -> Iterator[slice]:
    """Yield parts of the tokens whose logits, ``copies`` times over, ``LinearLogp`` allows."""
    at_once = LOGITS_AT_ONCE.get(device.type, LOGITS_AT_ONCE["cuda"])
    size = max(TOKENS_AT_ONCE, at_once // vocabulary) // copies
    for start in range(0, num_tokens, size):
        yield slice(start, start + size)


def _parts(hidden_KD: Tensor, weight_VD: Tensor) -> Iterator[slice]:
    return token_parts(len(hidden_KD), len(weight_VD), hidden_KD.device)


def _logits(hidden_kD: Tensor, weight_VD: Tensor, temperature: float) -> Tensor:
    logits_kV = (hidden_kD @ weight_VD.T).float()
    return logits_kV if temperature == 1.0 else logits_kV / temperature


def _cast(grad: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    return None if grad is None else grad.to(dtype)
