"""The memory that a run holds, logged at each iteration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch import Callback

STATUS = Path("/proc/self/status")


class ResidentMemory(Callback):
    """Logs ``memory/resident_gb``, what the process holds after an iteration. Linux only."""

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Read it from the operating system."""
        if STATUS.exists():
            lines = dict(line.split(":", 1) for line in STATUS.read_text().splitlines())
            pl_module.log("memory/resident_gb", int(lines["VmRSS"].split()[0]) * 1024 / 1e9)
