"""Causal attention in bfloat16 on a CPU, in tiles, by the C++ of ``r1lit.device.cpu``.

    B rows   H query heads   K key-value heads   L tokens   D head size

PyTorch's flash attention on CPUs takes two to four times as long (docs/PERFORMANCE.md). Memory
grows with the length of a row, not with its square.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from r1lit.device.cpu.build import has_bfloat16_kernels


class TiledAttention(torch.autograd.Function):
    """softmax(query @ key.T * scaling, causal) @ value; products in bfloat16, sums in float32."""

    @staticmethod
    def forward(
        ctx: Any, query_BHLD: Tensor, key_BKLD: Tensor, value_BKLD: Tensor, scaling: float
    ) -> Tensor:
        """Return [B, L, H, D], bfloat16."""
        out_BLHD, norm = torch.ops.r1lit.causal_attention(query_BHLD, key_BKLD, value_BKLD, scaling)
        ctx.save_for_backward(query_BHLD, key_BKLD, value_BKLD, out_BLHD, norm)
        ctx.scaling = scaling
        return out_BLHD

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_BLHD: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        """Return the gradients of query, key and value; weights are computed again."""
        query_BHLD, key_BKLD, value_BKLD, out_BLHD, norm = ctx.saved_tensors
        grads = torch.ops.r1lit.causal_attention_backward(
            grad_BLHD.contiguous().transpose(1, 2),
            query_BHLD,
            key_BKLD,
            value_BKLD,
            out_BLHD.transpose(1, 2),
            norm,
            ctx.scaling,
        )
        query, key, value = (
            grad.transpose(1, 2).to(of.dtype)
            for grad, of in zip(grads, (query_BHLD, key_BKLD, value_BKLD), strict=True)
        )
        return query, key, value, None


def suits_tiles(query: Tensor, value: Tensor, dropout: float) -> bool:
    """Return whether attention is in bfloat16 on such a CPU, over even heads, without dropout."""
    return (
        query.device.type == "cpu"
        and query.numel() > 0
        and query.dtype in (torch.float32, torch.bfloat16)
        and value.dtype == torch.bfloat16
        and query.shape[-1] == value.shape[-1]
        and query.shape[-1] % 2 == 0
        and dropout == 0.0
        and has_bfloat16_kernels()
    )


def attend_tiled(query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
    """Attend causally within each row.

    Args:
        query: [rows, heads, tokens, size], float32 or bfloat16.
        key: [rows, key-value heads, tokens, size], likewise.
        value: the same in bfloat16.
        scaling: of the scores.

    Returns:
        [rows, tokens, heads, size], bfloat16.
    """
    return TiledAttention.apply(query, key, value, scaling)
