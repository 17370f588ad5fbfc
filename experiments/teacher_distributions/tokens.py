"""A budget of tokens: a student's training ends, and its learning rate falls, with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning.pytorch as pl

from experiments.budget import Budget
from r1lit.files import read_records
from r1lit.modules import DistillationModule
from r1lit.supervised_batches import PackedRows

LEARNT = "learnt from"
SCORED = "scored by the teacher"
WRITTEN = "written by the teacher"


class TokenCount(Budget):
    """Adds up tokens in ``path``; ends the run with the iteration that learns ``limit`` of them.

    A token is learnt from if its prediction is in the loss, and scored if the teacher's
    distribution is needed there. What the teacher wrote is counted once, right or wrong.

    Args:
        path: of the count.
        limit: tokens that are learnt from.
        decay_to: share of the learning rate that is left at the end.
        written: the teacher's ``responses.jsonl``, for a student that reads it.
    """

    unit = LEARNT

    def __init__(
        self, path: str, limit: float, decay_to: float = 1.0, written: str | None = None
    ) -> None:
        super().__init__(path, limit, decay_to)
        self.written = None if written is None else Path(written)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Count what the teacher wrote.

        Raises:
            ValueError: if there are several processes, or no such file.
        """
        super().on_train_start(trainer, pl_module)
        if self.written is not None:
            if not self.written.is_file():
                raise ValueError(f"written: there is no file {str(self.written)!r}")
            self.counts[WRITTEN] = sum(r["num_tokens"] for r in read_records(self.written))

    def count(self, pl_module: pl.LightningModule, outputs: Any, batch: Any) -> dict[str, float]:
        """Return the tokens of an iteration, of documents or of the student's own responses."""
        if isinstance(batch, PackedRows):
            learnt = int(batch.loss_mask_RL.sum())
        else:
            learnt = int(outputs["rollout"].sampled_BT.sum())
        is_scored = isinstance(pl_module, DistillationModule) and pl_module.teacher is not None
        return {LEARNT: learnt, SCORED: learnt if is_scored else 0}
