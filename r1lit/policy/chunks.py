"""Chunks of tokens and of the vocabulary, whose logits are in memory at a time.

K predicted tokens   V vocabulary   D hidden size; k and v are those of a chunk
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

COPIES = 4  # tensors as large as a chunk's logits that a divergence holds at once


@dataclass(frozen=True, kw_only=True)
class ChunkSizes:
    """Sizes of chunks of logits, by kind of device; on a CPU the last two fit its cache.

    A chunk, a product with the head, has ``logits`` numbers. A chunk of tokens has ``tokens`` at
    least, since the weight's gradient passes through memory once a chunk; a chunk of the vocabulary
    has ``weight_rows`` at least. ``floats`` numbers of a chunk are in float32 at a time, and its
    gradient is added to ``weight_rows`` at a time.
    """

    logits: int
    tokens: int
    floats: int
    weight_rows: int


CHUNK_SIZES = {
    "cpu": ChunkSizes(logits=1 << 23, tokens=256, floats=1 << 20, weight_rows=1 << 10),
    "cuda": ChunkSizes(logits=1 << 27, tokens=256, floats=1 << 25, weight_rows=1 << 13),
}


def chunk_sizes(device: torch.device) -> ChunkSizes:
    """Return how much to work on at a time on a device."""
    return CHUNK_SIZES.get(device.type, CHUNK_SIZES["cuda"])


def token_chunks(
    num_tokens: int, vocabulary: int, device: torch.device, copies: int = 1
) -> Iterator[slice]:
    """Yield chunks of the tokens whose logits, ``copies`` times over, may exist at once."""
    most = chunk_sizes(device)
    size = max(most.tokens, most.logits // vocabulary) // copies
    for start in range(0, num_tokens, size):
        yield slice(start, start + size)


def vocabulary_chunks(hidden_KD: Tensor, vocabulary: int) -> Iterator[slice]:
    """Yield chunks of the vocabulary whose logits and whose copied weight may exist at once."""
    most = chunk_sizes(hidden_KD.device)
    size = max(1, most.logits // max(hidden_KD.shape) // most.weight_rows) * most.weight_rows
    for start in range(0, vocabulary, size):
        yield slice(start, min(start + size, vocabulary))


def few_rows(chunk: slice, product_kV: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yield a few tokens of a chunk at a time, each with their rows of its product (R, V)."""
    size = max(1, chunk_sizes(product_kV.device).floats // product_kV.shape[1])
    start = chunk.start
    for product_RV in product_kV.split(size):
        yield slice(start, start + len(product_RV)), product_RV
        start += len(product_RV)


def add_weight_gradient(weight_VD: Tensor, grad_kV: Tensor, hidden_kD: Tensor) -> None:
    """Add to the head's gradient, float32, what the gradient of its product gives."""
    size = chunk_sizes(grad_kV.device).weight_rows
    for grad_kv, weight_vD in zip(grad_kV.split(size, dim=1), weight_VD.split(size), strict=True):
        weight_vD += grad_kv.T @ hidden_kD
