"""An exact digest of a tensor, computed alike by trainer and vLLM; needs torch alone.

Each element's bits, as an integer, times an odd 32-bit number that depends on its place; the sum
modulo 2^64. One changed element always changes it, and several escape with a chance of about 2^-32.
It is linear in places: a tensor that servers keep in parts, in one row with others or in several
processes, has the sum of its parts' digests.

    digest of (1.0, 2.0) in float32 = 0x3f800000 * key[0] + 0x40000000 * key[1]
"""

from __future__ import annotations

from functools import lru_cache

import torch

CHUNK = 1 << 18  # elements: what is computed of them stays in a core's cache
GPU_CHUNK = 1 << 22
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def keys(start: int, stop: int, device: torch.device) -> torch.Tensor:
    """Return the odd numbers of the places from ``start`` to ``stop``, int32."""
    mixed = torch.arange(start, stop, dtype=torch.int64, device=device)
    for factor in (-7046029254386353131, -4658895280553007687):  # splitmix64's, as signed numbers
        mixed = mixed * factor
        mixed = mixed ^ ((mixed >> 29) & 0x7FFFFFFFF)
    return ((mixed >> 32) | 1).to(torch.int32)


@lru_cache(maxsize=32)
def small_keys(size: int, device: torch.device) -> torch.Tensor:
    """Return the first ``keys``, int64, kept: the many tensors of an adapter have few sizes."""
    return keys(0, size, device).to(torch.int64)


def digest(values: torch.Tensor, placed: torch.Tensor | None = None) -> int:
    """Return a tensor's digest; 0.0 and -0.0 are one number.

    Args:
        values: any shape and dtype.
        placed: their keys, of the same shape, 0 where an element does not count; those of its own
            places if left out.
    """
    flat = values.detach().reshape(-1)
    size = CHUNK if flat.device.type == "cpu" else GPU_CHUNK
    total = 0
    for start in range(0, flat.numel(), size):
        part = flat[start : start + size]
        if part.is_floating_point():
            part = part + 0.0
        bits = part.view(BITS[part.element_size()]).to(torch.int64)
        if placed is not None:
            own = placed.reshape(-1)[start : start + size]
        elif flat.numel() <= CHUNK:
            own = small_keys(len(part), part.device)
        else:
            own = keys(start, start + len(part), part.device)
        total += _sum_of_products(bits, own.to(torch.int64))
    return total % (1 << 64)


def _sum_of_products(left: torch.Tensor, right: torch.Tensor) -> int:
    if left.device.type == "cpu":
        return int(torch.dot(left, right))  # in one pass; CUDA has none of integers
    return int((left * right).sum())
