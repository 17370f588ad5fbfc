"""The machine: its allocator, its caches of kernels, and whether it computes in bfloat16."""

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

KERNEL_CACHES = ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY")
MOST_KERNELS = 64


def bound_kernel_caches() -> None:
    """Let PyTorch and oneDNN keep the code of 64 products each, and not of 1,024.

    oneDNN writes code for every shape of a product in bfloat16, a third of a megabyte each. Packed
    rows have another number of tokens in each micro-batch, so none is used again: a GRPO run of 135
    million parameters grew by 21 MB an iteration. The limits are read at the first product, and
    cannot be put back; those of the environment are kept.
    """
    for name in KERNEL_CACHES:
        os.environ.setdefault(name, str(MOST_KERNELS))


@contextmanager
def kept_memory() -> Iterator[bool]:
    """Let malloc hold on to what is freed, for the while; yield whether it does.

    As it comes, glibc maps fresh pages for every large tensor and gives them back when it is freed;
    clearing those pages can take longer than computing what goes into them. Tensors that grow, as
    caches do, leave holes that they do not fit in again: ``return_memory`` gives those back.
    Afterwards the settings are those of the
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


FIELDS = (  # of malloc.h
    *("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks"),
    *("fordblks", "keepcost"),
)


class _Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in FIELDS]


def allocated() -> dict[str, float]:
    """Return the bytes that malloc has handed out, those it keeps, and of them the heap's end.

    Nothing where the C library is not glibc 2.33 or newer. Files that are mapped are not in it.
    """
    libc = _libc()
    mallinfo2 = getattr(libc, "mallinfo2", None)
    if mallinfo2 is None:
        return {}
    mallinfo2.restype = _Mallinfo2
    info = mallinfo2()  # summed over malloc's arenas
    return {
        "in_use": float(info.uordblks + info.hblkhd),
        "free": float(info.fordblks),
        "end": float(info.keepcost),
    }


def return_memory() -> None:
    """Give back the pages of freed memory, between other memory too; it takes milliseconds."""
    libc = _libc()
    if libc is not None:
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


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Compute with so many threads for the while."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
