"""Causal attention over short rows in bfloat16 on a CPU, by plain matrix products.

    B rows times key-value heads   n query heads for each of them   L tokens   D head size

For rows of some hundred tokens PyTorch's flash attention on CPUs spends most of its time in the
backward pass; products of whole rows took half as long (docs/PERFORMANCE.md). Memory grows with
the square of the row, so long rows are left to flash attention.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from r1lit.kernels import has_kernels

LONGEST = 512  # tokens of a row


class ShortAttention(torch.autograd.Function):
    """softmax(query @ key.T * scaling, causal) @ value; scores in float32, products in bfloat16."""

    @staticmethod
    def forward(
        ctx: Any, query_BMD: Tensor, key_BLD: Tensor, value_BLD: Tensor, scaling: float
    ) -> Tensor:
        """Return [B, n * L, D]; a query's head comes before its token."""
        with torch.autocast("cpu", enabled=False):
            scores_BML = query_BMD @ key_BLD.transpose(1, 2)
        weight_BML = torch.ops.r1lit.causal_softmax(scores_BML, scaling)
        ctx.save_for_backward(query_BMD, key_BLD, value_BLD, weight_BML)
        ctx.scaling = scaling
        return weight_BML @ value_BLD

    @staticmethod
    def backward(ctx: Any, grad_BMD: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        """Return the gradients of query, key and value."""
        query_BMD, key_BLD, value_BLD, weight_BML = ctx.saved_tensors
        dtype = value_BLD.dtype
        grad_weight_BML = grad_BMD @ value_BLD.transpose(1, 2)
        grad_scores_BML = torch._softmax_backward_data(grad_weight_BML, weight_BML, -1, dtype)
        grad_query_BMD = grad_scores_BML @ key_BLD.to(dtype)
        grad_key_BLD = grad_scores_BML.transpose(1, 2) @ query_BMD.to(dtype)
        return (
            grad_query_BMD.float().mul_(ctx.scaling),
            grad_key_BLD.float().mul_(ctx.scaling),
            weight_BML.transpose(1, 2) @ grad_BMD,
            None,
        )


def suits_short(query: Tensor, value: Tensor, width: int, dropout: float) -> bool:
    """Return whether rows are short, in bfloat16, on a CPU with kernels, and without dropout."""
    return (
        width <= LONGEST
        and query.device.type == "cpu"
        and query.dtype == torch.float32
        and value.dtype == torch.bfloat16
        and dropout == 0.0
        and has_kernels()
    )


def attend_short(query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
    """Attend causally within each row.

    Args:
        query: [rows, heads, tokens, size], float32.
        key: [rows, key-value heads, tokens, size], float32.
        value: the same in bfloat16.
        scaling: of the scores.

    Returns:
        [rows, tokens, heads, size], bfloat16.
    """
    rows, heads, tokens, size = query.shape
    key_heads = key.shape[1]
    out_BMD = ShortAttention.apply(
        query.reshape(rows * key_heads, -1, size),
        key.reshape(rows * key_heads, tokens, size),
        value.reshape(rows * key_heads, tokens, size),
        scaling,
    )
    return out_BMD.view(rows, heads, tokens, size).transpose(1, 2)
