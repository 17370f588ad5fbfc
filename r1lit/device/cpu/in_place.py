"""Gradients of a large embedding, added to ``weight.grad`` where they are made.

Autograd hands a gradient of the whole [V, D] weight from each use of it to the next; where the head
is tied to the embedding three of them meet in a backward pass. Here each use adds its own to the
one that stays.

B rows   N tokens of one   D hidden size   V vocabulary   U distinct tokens
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from r1lit.device.operations import gradient_of

_allowed: ContextVar[bool] = ContextVar("in_place_gradients", default=False)


@contextmanager
def in_place_gradients(allowed: bool = True) -> Iterator[None]:
    """Let what is computed inside add its gradients to ``weight.grad``; see ``Backend``."""
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
