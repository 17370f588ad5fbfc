"""A callback that kills a sharded run while it writes a checkpoint."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback
from torch.distributed.checkpoint import FileSystemWriter

from r1lit import files
from r1lit.callbacks import checkpoints

MOMENTS = ("a share is written", "shares are written", "the old one stepped aside")


class KillWhileSaving(Callback):
    """Kills the ranks with SIGKILL while the checkpoint behind ``iteration`` is written."""

    def __init__(self, iteration: int, moment: str) -> None:
        assert moment in MOMENTS
        self.iteration, self.moment = iteration, moment

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        if int(pl_module.iteration) != self.iteration:
            return
        if self.moment == "a share is written":
            if trainer.global_rank == 1:
                write = FileSystemWriter.write_data

                def write_and_die(*args: Any) -> None:
                    write(*args).wait()
                    os.kill(os.getppid(), signal.SIGKILL)  # rank 0 has started this one
                    os.kill(os.getpid(), signal.SIGKILL)

                FileSystemWriter.write_data = write_and_die
        elif trainer.is_global_zero:
            rename = os.replace

            def replace_and_die(new: Path, path: Path) -> None:
                left = {"shares are written": 0, "the old one stepped aside": 1}[self.moment]

                def replace(*args: Any) -> None:
                    nonlocal left
                    if not left:
                        os.kill(os.getpid(), signal.SIGKILL)
                    left -= 1
                    rename(*args)

                files.os.replace = replace
                files.replace_path(new, path)

            checkpoints.replace_path = replace_and_die
