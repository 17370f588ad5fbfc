"""Operations that differ between devices: PyTorch's own, unless a subclass replaces them.

K predicted tokens   D hidden size   V vocabulary
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn


class Backend:
    """PyTorch's operations, for every device that has none of its own here.

    An operation that returns None leaves the work to its caller. Nothing here changes the process
    but ``running``, ``deterministic`` and ``decoding``, which put back what they change.
    """

    has_fast_bfloat16: bool = True
    """True where products in bfloat16 are faster than in float32."""

    def causal_attention(
        self, query: Tensor, key: Tensor, value: Tensor, scaling: float, dropout: float
    ) -> Tensor | None:
        """Return attention to a row's own and earlier tokens, or None.

        Args:
            query: [rows, heads, tokens, size].
            key: [rows, key-value heads, tokens, size].
            value: likewise; its dtype is the result's.
            scaling: of the scores.
            dropout: of the weights.

        Returns:
            [rows, tokens, heads, size].
        """
        return None

    def attends_end_to_end(self, query: Tensor, value: Tensor, dropout: float) -> bool:
        """Return whether ``varlen_attention`` attends with such tensors, [..., tokens, size]."""
        return False

    def varlen_attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        start_R1: Tensor,
        longest: int,
        scaling: float,
    ) -> Tensor:
        """Return causal attention within rows that lie end to end, [tokens, heads, size].

        Args:
            query: [tokens, heads, size].
            key: [tokens, key-value heads, size].
            value: likewise.
            start_R1: at which token each row begins, and the number of tokens; int32.
            longest: tokens of the longest row.
            scaling: of the scores.
        """
        raise NotImplementedError

    def attends_to_caches(self, dtype: torch.dtype) -> bool:
        """Return whether ``cached_attention`` attends to caches of this dtype."""
        return False

    def cached_attention(
        self, query: Tensor, key: Tensor, value: Tensor, caches: Sequence[Tensor], scaling: float
    ) -> Tensor:
        """Write the new token's key and value, and attend with its query.

        Args:
            query: [rows, heads, 1, size].
            key: [rows, key-value heads, 1, size].
            value: likewise.
            caches: the first six of ``r1lit.policy.block_attention.CachedLayer``.
            scaling: of the scores.

        Returns:
            [rows, heads, 1, size].
        """
        raise NotImplementedError

    def decoding_linear(
        self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype
    ) -> nn.Module | None:
        """Return a linear layer for a few rows at a time, or None.

        It has the weights as they are now, and its products are of this dtype.
        """
        return None

    def embed(self, embedding: nn.Module, ids: Tensor) -> Tensor | None:
        """Return the looked-up ids, whose gradient is added in place; or None."""
        return None

    def adds_gradients_in_place(self, weight: Tensor) -> bool:
        """Return whether the gradient of a weight, used now, shall be added where it is made."""
        return False

    def in_place_gradients(self, allowed: bool) -> AbstractContextManager[None]:
        """Let large gradients be added to ``weight.grad`` where they are made, if that pays here.

        Only for ``loss.backward()`` on one device: ``torch.autograd.grad`` would not be given them,
        and hooks that wait for a gradient, as those of DDP, would not see them.
        """
        return nullcontext()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Exclude the objects at the start of a run from garbage collection.

        Where the caller has done so with ``gc.freeze()``, that stays as it is.
        """
        if gc.get_freeze_count():
            yield
            return
        gc.collect()
        gc.freeze()
        try:
            yield
        finally:
            gc.unfreeze()

    @contextmanager
    def deterministic(self) -> Iterator[None]:
        """Have every operation give the same bits each time, or raise an error that names it."""
        was = torch.get_deterministic_debug_mode()
        torch.use_deterministic_algorithms(True)
        try:
            yield
        finally:
            torch.set_deterministic_debug_mode(was)

    @contextmanager
    def decoding(self) -> Iterator[None]:
        """Leave Python's collector off: loops that make no cycles lose a tenth of time to it."""
        was_on = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if was_on:
                gc.enable()

    def return_memory(self) -> None:
        """Give freed memory back to the system where the allocator keeps it in holes."""


@contextmanager
def variables(**values: str) -> Iterator[None]:
    """Set variables of the environment for the while, those that nobody has set."""
    missing = values.keys() - os.environ.keys()
    os.environ.update({name: values[name] for name in missing})
    try:
        yield
    finally:
        for name in missing:
            del os.environ[name]


def cumulative_sum(values: Tensor) -> Tensor:
    """Return the sums along the last dimension up to and with each element.

    PyTorch's of floating-point numbers on a GPU add in an order that differs from run to run.
    Within ``Backend.deterministic`` those are added by ``doubled_sums``.
    """
    unordered = values.is_cuda and values.is_floating_point()
    if unordered and torch.are_deterministic_algorithms_enabled():
        return doubled_sums(values)
    return values.cumsum(-1)


def doubled_sums(values: Tensor) -> Tensor:
    """Return ``values.cumsum(-1)`` up to rounding, in log2(n) steps of a fixed order.

    >>> doubled_sums(torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])).tolist()
    [1.0, 3.0, 6.0, 10.0, 15.0]
    """
    shift = 1
    while shift < values.shape[-1]:
        values = torch.cat(
            [values[..., :shift], values[..., shift:] + values[..., :-shift]], dim=-1
        )
        shift *= 2
    return values


def gradient_of(weight_VD: Tensor) -> Tensor:
    """Return ``weight.grad``, zeros if there was none."""
    if weight_VD.grad is None:
        weight_VD.grad = torch.zeros_like(weight_VD)
    return weight_VD.grad


def add_gradient(weight_VD: Tensor, grad_VD: Tensor) -> None:
    """Add a gradient to ``weight.grad``, or make it that."""
    if weight_VD.grad is None:
        weight_VD.grad = grad_VD
    else:
        weight_VD.grad.add_(grad_VD)
