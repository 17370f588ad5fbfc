"""Exports of a policy after some of a run's iterations, each in a folder of its own."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl

from r1lit.callbacks import ExportHuggingFace
from r1lit.callbacks.base import finished_iterations


class ExportAt(ExportHuggingFace):
    """Writes the policy after iteration n to ``policy_n`` in the run folder.

    Args:
        iterations: after which.
    """

    def __init__(self, iterations: list[int]) -> None:
        super().__init__()
        self.iterations = iterations

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Export, if it is one of those iterations."""
        done = finished_iterations(trainer, pl_module)
        if done in self.iterations:
            self.export(trainer, pl_module, self.dirpath.with_name(f"policy_{done}"))
