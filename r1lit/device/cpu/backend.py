"""The backend that ``r1lit.device`` registers for CPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor, nn

from r1lit.device.cpu import in_place, machine
from r1lit.device.cpu.build import has_bfloat16_kernels, has_kernels
from r1lit.device.cpu.packed_linear import PackedLinear
from r1lit.device.cpu.tiled_attention import attend_tiled, suits_tiles
from r1lit.device.operations import Backend


class CPU(Backend):
    """Kernels in C++ where they could be built, gradients in place, memory that is kept."""

    @property
    def has_fast_bfloat16(self) -> bool:  # type: ignore[override]
        """Whether this processor has instructions for products in bfloat16."""
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
        return in_place.embed(embedding, ids)

    def adds_gradients_in_place(self, weight: Tensor) -> bool:
        """Return whether this is within ``in_place_gradients``, and the weight a float32 leaf."""
        return in_place.may_add_in_place(weight)

    def in_place_gradients(self, allowed: bool) -> AbstractContextManager[None]:
        """Let embedding and head add their gradients themselves."""
        return in_place.in_place_gradients(allowed)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Keep freed memory, too, and few kernels."""
        machine.bound_kernel_caches()
        with super().running(), machine.kept_memory():
            yield

    def return_memory(self) -> None:
        """Give back what malloc has kept."""
        machine.return_memory()
