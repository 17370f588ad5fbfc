"""The machine: its allocator, and whether it computes in bfloat16."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

LARGEST_INT = 2**31 - 1
SETTINGS = (
    # of malloc.h: parameter, its value in a run, the environment's name for it, glibc's default
    (-4, 0, "MALLOC_MMAP_MAX_", 65536),
    (-1, LARGEST_INT, "MALLOC_TRIM_THRESHOLD_", 128 << 10),
    (-2, 64 << 20, "MALLOC_TOP_PAD_", 128 << 10),
)


@contextmanager
def kept_memory() -> Iterator[bool]:
    """Let malloc hold on to what is freed, for the while; yield whether it does.

    As it comes, glibc maps fresh pages for every large tensor and gives them back when it is freed;
    clearing those pages can take longer than computing what goes into them. The peak stays as it
    is: memory is only not returned in between. Afterwards the settings are those of the
    environment (``MALLOC_TOP_PAD_`` and the like) or glibc's own, and free memory is returned. Two
    things cannot be put back: glibc no longer adapts its threshold of mapping by itself, and the
    address space that its heap has grown by is used first by what is allocated later.
    """
    libc = _libc()
    kept = libc is not None and all(
        libc.mallopt(parameter, wanted) == 1 for parameter, wanted, _, _ in SETTINGS
    )
    try:
        yield kept
    finally:
        if libc is not None:
            for parameter, _, name, default in SETTINGS:
                libc.mallopt(parameter, int(os.environ.get(name, default)))
            libc.malloc_trim(0)


def _libc() -> ctypes.CDLL | None:
    """Return the C library where it is glibc."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        libc = ctypes.CDLL(None)
        return libc if libc.mallopt and libc.malloc_trim else None
    except (AttributeError, OSError):  # another one, such as musl
        return None


def has_fast_bfloat16() -> bool:
    """Return whether this CPU has instructions for products in bfloat16."""
    if platform.machine() in ("x86_64", "AMD64"):
        return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
