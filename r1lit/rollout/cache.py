"""A key-value cache that is written in place."""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import DynamicCache, PretrainedConfig
from transformers.cache_utils import DynamicLayer

BLOCK = 128


class InPlaceLayer(DynamicLayer):
    """Keys and values of one layer, in buffers with room to grow by blocks of 128 tokens.

    ``DynamicLayer`` copies everything for each new token; this copies once a block.
    """

    def __init__(self) -> None:
        super().__init__()
        self._buffers: tuple[Tensor, Tensor] | None = None

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """Append keys and values ``[rows, heads, tokens, size]``; return all of them."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None and self.values is not None
        start = self.get_seq_length()
        end = start + key_states.shape[-2]
        if self._buffers is None or end > self._buffers[0].shape[-2]:
            self._buffers = (self._grow(self.keys, key_states, end),
                             self._grow(self.values, value_states, end))  # fmt: skip
        for buffer, states in zip(self._buffers, (key_states, value_states), strict=True):
            buffer[..., start:end, :] = states
        self.keys, self.values = (buffer[..., :end, :] for buffer in self._buffers)
        return self.keys, self.values

    @staticmethod
    def _grow(old: Tensor, states: Tensor, end: int) -> Tensor:
        rows, heads, _, size = states.shape
        room = (end // BLOCK + 1) * BLOCK
        buffer = torch.empty(rows, heads, room, size, dtype=states.dtype, device=states.device)
        if old.numel():
            buffer[..., : old.shape[-2], :] = old
        return buffer

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        """Make the rows at ``beam_idx``, which may repeat or leave out some, the cache's rows."""
        self._buffers = None
        super().reorder_cache(beam_idx)


def make_cache(config: PretrainedConfig) -> DynamicCache:
    """Return an empty cache for a policy, with in-place layers for full attention.

    Sliding windows and linear attention keep the library's own layers. Change the cache's rows
    with ``reorder_cache`` alone: the ``batch_…`` methods leave out the states of linear attention.
    """
    cache = DynamicCache(config=config)
    cache.layers = [
        InPlaceLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers
    ]
    return cache
