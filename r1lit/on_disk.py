"""Tensors of numbers in a file without a name, which need not stay in memory.

N numbers   n numbers of a slice
"""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

AT_ONCE = 1 << 22  # numbers of a slice


class Mapped:
    """As many numbers as a parameter has, in a file."""

    def __init__(self, memory: mmap.mmap, start: int, like: Tensor) -> None:
        self._memory = memory
        self._start = start
        self.values_N = torch.frombuffer(memory, dtype=like.dtype, count=like.numel(), offset=start)

    def take(self, values: Tensor, shape: torch.Size) -> None:
        """Copy a tensor of this shape into the file.

        Raises:
            ValueError: if it has another.
        """
        if values.shape != shape:
            raise ValueError(
                f"the saved optimiser has a moment of shape {tuple(values.shape)} for a parameter"
                f" of shape {tuple(shape)}: it belongs to another model"
            )
        values_N = values.reshape(-1)
        for mine_n, values_n in zip(self.slices(), values_N.split(AT_ONCE), strict=True):
            mine_n.copy_(values_n)

    def zero_(self) -> None:
        """Set all of it to zero."""
        for values_n in self.slices():
            values_n.zero_()

    def slices(self) -> Iterator[Tensor]:
        """Yield slices, views of the file; each is out of memory when the next is asked for."""
        start = 0
        for values_n in self.values_N.split(AT_ONCE):
            yield values_n
            self.release(start, values_n.nbytes)
            start += values_n.nbytes

    def release(self, start: int = 0, size: int | None = None) -> None:
        """Let bytes leave this process's memory, all of them unless told; they stay in the file."""
        if hasattr(mmap, "MADV_DONTNEED"):  # Windows has none
            size = self.values_N.nbytes if size is None else size
            self._memory.madvise(mmap.MADV_DONTNEED, self._start + start, size)


class MappedGradient:
    """A gradient in a file, which knows whether one has come since it was zero."""

    def __init__(self, mapped: Mapped) -> None:
        self._mapped = mapped
        self._version = 0

    def zeros(self) -> Tensor:
        """Return it (N), set to zero."""
        self._mapped.zero_()
        self._version = self._mapped.values_N._version
        return self._mapped.values_N

    def has_come(self, grad: Tensor) -> bool:
        """Return whether ``parameter.grad`` is another, or was written to since then."""
        mine_N = self._mapped.values_N
        return grad.data_ptr() != mine_N.data_ptr() or mine_N._version != self._version

    def release(self) -> None:
        """Let it leave this process's memory."""
        self._mapped.release()


def map_like(tensors: Sequence[Tensor], folder: str) -> list[Mapped]:
    """Return room for each of the tensors, zeros, in one new file without a name.

    Raises:
        ValueError: if there is no such folder, or no room in it.
    """
    page = mmap.ALLOCATIONGRANULARITY
    sizes = [-(-tensor.nbytes // page) * page for tensor in tensors]
    if not Path(folder).is_dir():
        raise ValueError(f"folder: {folder!r} is none; the optimiser needs one, on a disk")
    needed, free = sum(sizes), shutil.disk_usage(folder).free
    if free < needed:
        raise ValueError(
            f"folder: {folder!r} has {free / 1e9:.1f} GB left and the optimiser needs"
            f" {needed / 1e9:.1f}; name another"
        )
    if not needed:
        return []
    with tempfile.TemporaryFile(dir=folder) as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, needed)  # a disk may fill up later
        else:
            file.truncate(needed)
        memory = mmap.mmap(file.fileno(), needed)
    starts = [sum(sizes[:index]) for index in range(len(sizes))]
    return [Mapped(memory, start, like) for start, like in zip(starts, tensors, strict=True)]
