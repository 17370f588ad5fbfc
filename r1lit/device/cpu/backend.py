"""The backend that ``r1lit.device`` registers for CPUs, with gradients added in place.

Autograd hands a gradient of the whole [V, D] weight from each use of it to the next; where the head
is tied to the embedding three of them meet in a backward pass. Here each use adds its own to the
one that stays.

B rows   N tokens of one   D hidden size   V vocabulary   U distinct tokens
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from r1lit.device.cpu import machine
from r1lit.device.cpu.kernels import (
    PackedLinear,
    attend_tiled,
    has_bfloat16_kernels,
    has_kernels,
    suits_tiles,
)
from r1lit.device.operations import Backend, gradient_of

_allowed: ContextVar[bool] = ContextVar("in_place_gradients", default=False)


@contextmanager
def in_place_gradients(allowed: bool = True) -> Iterator[None]:
    """Allow gradients to be added to ``weight.grad`` in place, inside; see ``Backend``."""
    token = _allowed.set(allowed)
    try:
        yield
    finally:
        _allowed.reset(token)


def may_add_in_place(weight_VD: Tensor) -> bool:
    """Return whether the gradient of a weight, used now, may be added where it is made."""
    suits = weight_VD.is_leaf and weight_VD.requires_grad and weight_VD.dtype == torch.float32
    return suits and _allowed.get()


class InPlaceEmbedding(torch.autograd.Function):
    """``weight[ids]``, whose backward pass touches the rows that were looked up and no other."""

    @staticmethod
    def forward(ctx: Any, weight_VD: Tensor, ids_BN: Tensor, padding_idx: int | None) -> Tensor:
        """Look the tokens up; (B, N, D)."""
        ctx.save_for_backward(weight_VD, ids_BN)
        ctx.padding_idx = padding_idx
        return nn.functional.embedding(ids_BN, weight_VD)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_BND: Tensor) -> tuple[None, None, None]:
        """Sum over equal tokens first, as PyTorch's does, in the same order on every run."""
        weight_VD, ids_BN = ctx.saved_tensors
        distinct_U, place_BN = ids_BN.unique(return_inverse=True)
        grad_UD = torch.ops.aten.embedding_dense_backward(
            grad_BND, place_BN, len(distinct_U), -1, False
        )
        if ctx.padding_idx is not None:
            grad_UD[distinct_U == ctx.padding_idx] = 0.0
        gradient_of(weight_VD).index_add_(0, distinct_U, grad_UD)
        return None, None, None


def embed(embedding: nn.Module, ids_BN: Tensor) -> Tensor | None:
    """Return looked-up ids, (B, N, D); None where their gradient may not be added in place."""
    # subclasses scale what they look up, adapters are no embeddings
    if type(embedding) is not nn.Embedding or not may_add_in_place(embedding.weight):
        return None
    return InPlaceEmbedding.apply(embedding.weight, ids_BN, embedding.padding_idx)


class CPU(Backend):
    """Kernels in C++ where they could be built, gradients in place, memory that is kept."""

    @property
    def has_fast_bfloat16(self) -> bool:  # type: ignore[override]
        """True where this processor has instructions for products in bfloat16."""
        return machine.has_fast_bfloat16()

    def causal_attention(
        self, query: Tensor, key: Tensor, value: Tensor, scaling: float, dropout: float
    ) -> Tensor | None:
        """Attend in tiles, where they suit."""
        if not suits_tiles(query, value, dropout):
            return None
        return attend_tiled(query, key, value, scaling)

    def attends_to_caches(self, dtype: torch.dtype) -> bool:
        """Return whether the loop takes this dtype; build it if need be."""
        return dtype in (torch.bfloat16, torch.float32) and has_kernels()

    def cached_attention(
        self, query: Tensor, key: Tensor, value: Tensor, caches: Sequence[Tensor], scaling: float
    ) -> Tensor:
        """Attend in one loop."""
        prompt_key, prompt_value, prompt_length, own_key, own_value, prompt_R = caches
        return torch.ops.r1lit.attend_cached(
            *(query, key, value),
            *(prompt_key, prompt_value, prompt_length, prompt_R),
            *(own_key, own_value, scaling),
        )

    def decoding_linear(
        self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype
    ) -> nn.Module | None:
        """Pack the weights, where the kernel takes them."""
        suits = dtype == torch.bfloat16 and weight.shape[1] % 2 == 0
        return PackedLinear(weight, bias) if suits and has_bfloat16_kernels() else None

    def embed(self, embedding: nn.Module, ids: Tensor) -> Tensor | None:
        """Look ids up, if the gradient may be added in place."""
        return embed(embedding, ids)

    def adds_gradients_in_place(self, weight: Tensor) -> bool:
        """Return whether this is within ``in_place_gradients``, and the weight a float32 leaf."""
        return may_add_in_place(weight)

    def in_place_gradients(self, allowed: bool) -> AbstractContextManager[None]:
        """Let embedding and head add their gradients themselves."""
        return in_place_gradients(allowed)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Keep freed memory, too, and few kernels."""
        machine.bound_kernel_caches()
        with super().running(), machine.kept_memory():
            yield

    def return_memory(self) -> None:
        """Return the memory that malloc has kept to the system."""
        machine.return_memory()
