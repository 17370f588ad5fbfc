"""Checkpoints written and read without being in memory as a whole."""

from __future__ import annotations

import errno
import os
import pickle
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO


class StreamedCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint into its file as it goes, and maps one that it reads.

    Lightning's own makes all bytes in memory before it writes them, and reads all of them before it
    hands out the first: weights and optimiser once more. For files, not for object storage. A kill
    leaves half a file where one was being written, so write beside the place and rename.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None
    ) -> None:
        """Write a checkpoint; there are no ``storage_options``.

        Raises:
            ValueError: if it cannot be written, to a full disk for example.
        """
        path = Path(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:  # by its name, torch would hide why it failed
                torch.save(checkpoint, file)
                file.flush()
                os.fsync(file.fileno())
        except (OSError, RuntimeError) as error:
            # torch's writer of archives raises its own error over the system's
            cause = error if isinstance(error, OSError) else error.__context__
            if not isinstance(cause, OSError):
                raise
            kept = any(other != path for other in path.parent.glob("[!.]*.ckpt*"))
            raise ValueError(
                f"dirpath: the checkpoint cannot be written to {path.parent} ({cause.strerror});"
                f" {'the one before it is intact' if kept else 'there is none before it'}"
            ) from error

    def load_checkpoint(
        self,
        path: str | Path,
        map_location: Callable[..., Any] | None = None,
        weights_only: bool | None = None,
    ) -> dict[str, Any]:
        """Read a checkpoint, whose tensors come from the file when they are looked at.

        Its bytes are compared with the checksums in it first.

        Raises:
            FileNotFoundError: if there is none.
            ValueError: if it is cut, empty or damaged.
        """
        refuse_damaged(Path(path))
        try:
            return torch.load(path, map_location=map_location, weights_only=weights_only, mmap=True)
        except (RuntimeError, ValueError, EOFError, pickle.UnpicklingError) as error:
            # torch's reader of archives heeds more than Python's
            if "Unsupported global" in str(error) or "Unsupported class" in str(error):
                raise
            raise _damaged(path, " ".join(str(error).split(". ")[0].split())) from error


def refuse_damaged(path: Path) -> None:
    """Raise a ValueError if a checkpoint's bytes are not those that were written.

    A checkpoint is a zip archive, which holds a checksum of each tensor.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError) as error:
        damaged = str(error)  # also a flag: an encrypted part, a compression, a name's encoding
    except OSError as error:
        if error.errno != errno.EINVAL:  # an offset before the file's beginning
            raise
        damaged = str(error)
    if damaged is not None:
        raise _damaged(path, damaged)


def _damaged(path: str | Path, how: str) -> ValueError:
    return ValueError(
        f"ckpt_path: {path} is damaged ({how}); resume from an older checkpoint, or begin again"
        " in another folder by --run"
    )


def stream_checkpoints(trainer: pl.Trainer) -> None:
    """Put a ``StreamedCheckpointIO`` in the place of Lightning's own, but of no other."""
    if type(trainer.strategy.checkpoint_io) is TorchCheckpointIO:
        trainer.strategy.checkpoint_io = StreamedCheckpointIO()
