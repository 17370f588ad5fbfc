"""The cross-entropy of a linear head, without the logits of all tokens.

K predicted tokens   V vocabulary   D hidden size
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from r1lit.device import add_gradient, backend
from r1lit.policy.attention import autocast_dtype
from r1lit.policy.chunks import add_weight_gradient, few_rows, token_chunks
from r1lit.policy.outputs import Compute
from r1lit.policy.predictions import PolicyOutput, Predictions


class CrossEntropy(Compute):
    """``cross_entropy``, summed over the targets; takes less time than ``LogProbs``."""

    def __call__(self, predictions: Predictions, target_K: Tensor) -> PolicyOutput:
        """Return the summed cross-entropy."""
        if predictions.weight_VD is None:
            return PolicyOutput(cross_entropy=-predictions.logp(target_K).sum())
        loss = linear_cross_entropy(predictions.states_KD, predictions.weight_VD, target_K)
        return PolicyOutput(cross_entropy=loss)


class LinearCrossEntropy(torch.autograd.Function):
    """Summed cross-entropy of the targets under softmax(hidden @ weight.T).

    Logits are made for a chunk of the tokens at a time (``ChunkSizes``). Up to a factor, the
    gradient is known when a token's logits are, so it is computed with them and they are never
    computed again: one of four products with the head is saved.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden_KD: Tensor, weight_VD: Tensor, target_K: Tensor, with_gradient: bool
    ) -> Tensor:
        """Return the sum, float32."""
        cast_VD = weight_VD.to(hidden_KD.dtype)
        loss = torch.zeros((), device=hidden_KD.device)
        ctx.save_for_backward(weight_VD)
        ctx.in_place = backend(weight_VD.device).adds_gradients_in_place(weight_VD)
        wanted = with_gradient and any(ctx.needs_input_grad[:2])
        ctx.gradients = _Gradients(ctx, hidden_KD, weight_VD) if wanted else None
        for chunk, product_kV in _token_products(hidden_KD, cast_VD):
            for rows, product_RV in few_rows(chunk, product_kV):
                logits_RV = product_RV.float()
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
                ctx.gradients.add(chunk, product_kV, hidden_KD, cast_VD)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        """Scale the gradients that the forward pass has made.

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
    """Gradients of hidden states and, in float32, of the weight; None where none is needed."""

    def __init__(self, ctx: Any, hidden_KD: Tensor, weight_VD: Tensor) -> None:
        to_hidden, to_weight, *_ = ctx.needs_input_grad
        self.hidden_KD = torch.empty_like(hidden_KD) if to_hidden else None
        self.weight_VD = torch.zeros_like(weight_VD, dtype=torch.float32) if to_weight else None

    def add(self, chunk: slice, grad_kV: Tensor, hidden_KD: Tensor, cast_VD: Tensor) -> None:
        """Take the gradient of a chunk's logits."""
        if self.hidden_KD is not None:
            torch.mm(grad_kV, cast_VD, out=self.hidden_KD[chunk])
        if self.weight_VD is not None:
            add_weight_gradient(self.weight_VD, grad_kV, hidden_KD[chunk])

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
        add_gradient(weight_VD, self.weight_VD)
        return None


def linear_cross_entropy(hidden_KD: Tensor, weight_VD: Tensor, target_K: Tensor) -> Tensor:
    """Return the cross-entropy summed over the targets, float32; see ``LinearCrossEntropy``."""
    hidden_KD = hidden_KD.to(autocast_dtype(hidden_KD.device, hidden_KD.dtype))
    return LinearCrossEntropy.apply(hidden_KD, weight_VD, target_K, torch.is_grad_enabled())


def _token_products(hidden_KD: Tensor, cast_VD: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yield chunks of the tokens, each with its product with the head (k, V), until the next."""
    buffer_kV: Tensor | None = None
    for chunk in token_chunks(len(hidden_KD), len(cast_VD), hidden_KD.device):
        hidden_kD = hidden_KD[chunk]
        if buffer_kV is None:
            buffer_kV = hidden_kD.new_empty(len(hidden_kD), len(cast_VD))
        product_kV = buffer_kV[: len(hidden_kD)]
        torch.mm(hidden_kD, cast_VD.T, out=product_kV)
        yield chunk, product_kV
