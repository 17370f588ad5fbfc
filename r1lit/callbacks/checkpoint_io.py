"""Checkpoints written and read without being in memory as a whole."""

from __future__ import annotations

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
        """Write a checkpoint; there are no ``storage_options``."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(checkpoint, path)

    def load_checkpoint(
        self,
        path: str | Path,
        map_location: Callable[..., Any] | None = None,
        weights_only: bool | None = None,
    ) -> dict[str, Any]:
        """Read a checkpoint, whose tensors come from the file when they are looked at.

        Raises:
            FileNotFoundError: if there is none.
        """
        return torch.load(path, map_location=map_location, weights_only=weights_only, mmap=True)


def stream_checkpoints(trainer: pl.Trainer) -> None:
    """Put a ``StreamedCheckpointIO`` in the place of Lightning's own, but of no other."""
    if type(trainer.strategy.checkpoint_io) is TorchCheckpointIO:
        trainer.strategy.checkpoint_io = StreamedCheckpointIO()
