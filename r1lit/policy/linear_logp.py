"""Log-probs and entropies of a linear head, without the logits of all tokens.

R rows of a chunk   K predicted tokens   V vocabulary   D hidden size
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from r1lit.device import backend, gradient_of
from r1lit.policy.attention import autocast_dtype
from r1lit.policy.chunks import add_weight_gradient, few_rows, vocabulary_chunks

LEAST = torch.finfo(torch.float32).min


class LinearLogp(torch.autograd.Function):
    """log softmax(hidden @ weight.T / temperature) at the targets, and the entropy beside it.

    The entropy H has a gradient on request alone: d H / d logits = -p (log p + H) / temperature.

    Logits of all tokens are made for a chunk of the vocabulary at a time (``ChunkSizes``) and go
    into a running softmax; the backward pass makes them again. The products run in the dtype of
    ``hidden_KD``, to which a chunk of the weight is cast when its turn comes; what follows runs in
    float32, a few rows of a product at a time.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden_KD: Tensor,
        weight_VD: Tensor,
        target_K: Tensor,
        temperature: float,
        entropy_gradient: bool,
    ) -> tuple[Tensor, Tensor]:
        """Return log-probs (K) and entropies (K)."""
        ctx.temperature = temperature
        ctx.entropy_gradient = entropy_gradient
        ctx.in_place = backend(weight_VD.device).adds_gradients_in_place(weight_VD)
        running = _RunningSoftmax(target_K)
        for chunk, _, product_Kv in _vocabulary_products(hidden_KD, weight_VD):
            for rows, product_Rv in few_rows(slice(0, len(hidden_KD)), product_Kv):
                running.add(rows, chunk, _logits(product_Rv, temperature))
        logp_K, entropy_K = running.logp_K(), running.entropy_K()
        ctx.save_for_backward(hidden_KD, weight_VD, target_K, running.normaliser_K(), entropy_K)
        if not entropy_gradient:
            ctx.mark_non_differentiable(entropy_K)
        return logp_K, entropy_K

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad_K: Tensor, entropy_grad_K: Tensor
    ) -> tuple[Tensor | None, Tensor | None, None, None, None]:
        """Make the logits again: d logp / d logits = (onehot - softmax) / temperature."""
        hidden_KD, weight_VD, target_K, normaliser_K, entropy_K = ctx.saved_tensors
        to_hidden, to_weight, *_ = ctx.needs_input_grad
        grad_K1 = grad_K[:, None].float() / ctx.temperature
        hidden_grad_KD = torch.zeros_like(hidden_KD, dtype=torch.float32) if to_hidden else None
        weight_grad_VD: Tensor | None = None
        if to_weight and ctx.in_place:
            weight_grad_VD = gradient_of(weight_VD)
        elif to_weight:
            weight_grad_VD = torch.zeros_like(weight_VD, dtype=torch.float32)
        for chunk, cast_vD, product_Kv in _vocabulary_products(hidden_KD, weight_VD):
            for rows, product_Rv in few_rows(slice(0, len(hidden_KD)), product_Kv):
                logits_Rv = _logits(product_Rv, ctx.temperature)
                grad_R1 = grad_K1[rows]
                logp_Rv = logits_Rv.sub_(normaliser_K[rows, None])
                if ctx.entropy_gradient:
                    above_Rv = logp_Rv.nan_to_num(neginf=0.0) + entropy_K[rows, None]
                    slope_Rv = above_Rv.mul_(entropy_grad_K[rows, None] / ctx.temperature)
                    grad_Rv = logp_Rv.exp_().mul_(-grad_R1 - slope_Rv)
                else:
                    grad_Rv = logp_Rv.exp_().mul_(-grad_R1)
                index_R1, inside_R1 = _local_index(target_K[rows], chunk)
                grad_Rv.scatter_add_(-1, index_R1, grad_R1 * inside_R1)
                product_Rv.copy_(grad_Rv)
            if hidden_grad_KD is not None:
                hidden_grad_KD += product_Kv @ cast_vD
            if weight_grad_VD is not None:
                add_weight_gradient(weight_grad_VD[chunk], product_Kv, hidden_KD)
        if hidden_grad_KD is not None:
            hidden_grad_KD = hidden_grad_KD.to(hidden_KD.dtype)
        if weight_grad_VD is not None:
            weight_grad_VD = None if ctx.in_place else weight_grad_VD.to(weight_VD.dtype)
        return hidden_grad_KD, weight_grad_VD, None, None, None


class _RunningSoftmax:
    """Statistics of every token's softmax, updated by one chunk of its logits after the other.

    Exponentials are relative to the largest logit so far and rescaled when a larger one comes
    (Milakov and Gimelshein 2018).
    """

    def __init__(self, target_K: Tensor) -> None:
        zeros_K = torch.zeros(len(target_K), device=target_K.device)
        self._target_K = target_K
        self._target_logit_K, self._sum_K, self._weighted_sum_K = (
            zeros_K.clone() for _ in range(3)
        )
        self._max_K = zeros_K.fill_(LEAST)  # finite: a logit may be -inf

    def add(self, rows: slice, chunk: slice, logits_Rv: Tensor) -> None:
        """Add some tokens' logits of a chunk of the vocabulary; their memory is overwritten."""
        index_R1, inside_R1 = _local_index(self._target_K[rows], chunk)
        self._target_logit_K[rows] += (
            logits_Rv.gather(-1, index_R1).where(inside_R1, 0.0).squeeze(-1)
        )
        old_max_R = self._max_K[rows]
        max_R = torch.maximum(old_max_R, logits_Rv.amax(-1))
        shift_R = old_max_R - max_R
        scale_R = shift_R.exp()
        logits_Rv.sub_(max_R[:, None])
        exp_Rv = logits_Rv.exp()
        sum_R = exp_Rv.sum(-1)
        # a logit of -inf has probability 0 and adds 0; autocast would round a dot product
        weighted_sum_R = exp_Rv.mul_(logits_Rv.nan_to_num_(neginf=0.0)).sum(-1)
        shifted_R = self._weighted_sum_K[rows] + self._sum_K[rows] * shift_R
        self._weighted_sum_K[rows] = shifted_R * scale_R + weighted_sum_R
        self._sum_K[rows] = self._sum_K[rows] * scale_R + sum_R
        self._max_K[rows] = max_R

    def logp_K(self) -> Tensor:
        """Return the targets' log-probs."""
        return self._target_logit_K - self._max_K - self._sum_K.log()

    def entropy_K(self) -> Tensor:
        """Return the entropies."""
        return self._sum_K.log() - self._weighted_sum_K / self._sum_K

    def normaliser_K(self) -> Tensor:
        """Return the logarithms of the sums of exponentials."""
        return self._max_K + self._sum_K.log()


def linear_logp(
    hidden_KD: Tensor,
    weight_VD: Tensor,
    target_K: Tensor,
    temperature: float = 1.0,
    entropy_gradient: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return float32 log-probs of the targets and entropies, each (K); see ``LinearLogp``.

    A temperature of 0 (greedy sampling) counts as 1.
    """
    hidden_KD = hidden_KD.to(autocast_dtype(hidden_KD.device, hidden_KD.dtype))
    return LinearLogp.apply(hidden_KD, weight_VD, target_K, temperature or 1.0, entropy_gradient)


def _vocabulary_products(
    hidden_KD: Tensor, weight_VD: Tensor
) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yield chunks of the vocabulary, each with its weight and product (K, v), until the next."""
    buffer: Tensor | None = None
    for chunk in vocabulary_chunks(hidden_KD, len(weight_VD)):
        cast_vD = weight_VD[chunk].to(hidden_KD.dtype)
        shape = len(hidden_KD), len(cast_vD)
        if buffer is None:
            buffer = hidden_KD.new_empty(shape[0] * shape[1])
        product_Kv = buffer[: shape[0] * shape[1]].view(shape)
        torch.mm(hidden_KD, cast_vD.T, out=product_Kv)
        yield chunk, cast_vD, product_Kv


def _logits(product_Rv: Tensor, temperature: float) -> Tensor:
    """Return logits in float32: the product's own memory where that is float32 already."""
    logits_Rv = product_Rv.float()
    return logits_Rv if temperature == 1.0 else logits_Rv.div_(temperature)


def _local_index(target_R: Tensor, chunk: slice) -> tuple[Tensor, Tensor]:
    """Return the targets' indices within a chunk of the vocabulary, and whether they lie in it."""
    index_R1 = (target_R - chunk.start)[:, None]
    size = chunk.stop - chunk.start
    return index_R1.clamp(0, size - 1), (index_R1 >= 0) & (index_R1 < size)
