"""A policy's weights as a folder of safetensors that another process reads."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

from r1lit.files import beside, remove, replace_path

SHARD_BYTES = 256 * 1024**2  # one file, and what is held beside the weights while it is written


def write_weights(folder: Path, weights: Iterable[tuple[str, Tensor]]) -> list[str]:
    """Write named tensors into ``folder``, in files of ``SHARD_BYTES`` or one tensor.

    The folder is there when it is whole. Tensors are read one after another, and no more than a
    file's are held. Names that share their memory, as those of tied weights, are each written.

    Returns:
        The names.
    """
    temporary = beside(folder)
    remove(temporary)
    temporary.mkdir(parents=True)
    names: list[str] = []
    shard: dict[str, Tensor] = {}
    memory: set[int] = set()
    num_bytes = num_files = 0

    def flush() -> None:
        nonlocal num_bytes, num_files
        save_file(shard, temporary / f"{num_files:05d}.safetensors")
        shard.clear()
        memory.clear()
        num_bytes, num_files = 0, num_files + 1

    for name, tensor in weights:
        here = tensor.detach().cpu().contiguous()
        place = here.untyped_storage().data_ptr()
        # safetensors refuses two names of one memory in a file
        if shard and (place in memory or num_bytes + here.nbytes > SHARD_BYTES):
            flush()
        shard[name] = here
        memory.add(place)
        num_bytes += here.nbytes
        names.append(name)
    flush()
    replace_path(temporary, folder)
    return names
