"""What the machine is like: its allocator, its garbage, and whether it computes in bfloat16."""

from __future__ import annotations

import ctypes
import gc
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

# of malloc.h
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4
LARGEST_INT = 2**31 - 1
GROW_BY = 64 << 20


def keep_freed_memory() -> bool:
    """Let malloc hold on to what is freed; return whether it will.

    As it comes, glibc maps fresh pages for every large tensor and gives them back when it is freed;
    clearing those pages can take longer than computing what goes into them. The peak stays as it
    is: memory is only not returned in between. Harmless to call again.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # another C library, such as musl
        return False
    return all(
        mallopt(parameter, value) == 1
        for parameter, value in (
            (M_MMAP_MAX, 0),
            (M_TRIM_THRESHOLD, LARGEST_INT),
            (M_TOP_PAD, GROW_BY),
        )
    )


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Leave Python's collector off for the while: loops that make no cycles pay a tenth for it."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def has_fast_bfloat16() -> bool:
    """Return whether this CPU has instructions for products in bfloat16."""
    if platform.machine() in ("x86_64", "AMD64"):
        return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


def inference_dtype(device: torch.device) -> str:
    """Return the dtype to draw responses in: bfloat16, or float32 on a CPU that is slow in it."""
    slow = device.type == "cpu" and not has_fast_bfloat16()
    return "float32" if slow else "bfloat16"
