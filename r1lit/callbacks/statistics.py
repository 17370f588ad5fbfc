"""A callback that turns each response into a small row and logs numbers about the rows."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Generic, TypeVar

import lightning.pytorch as pl
from lightning.pytorch import Callback

from r1lit.batches import Rollout
from r1lit.callbacks.stage import gather, log_evaluation, log_iteration, rollout_of, stage_of

Row = TypeVar("Row")


class RolloutStatistics(Callback, Generic[Row]):
    """Logs ``summarise(rows)`` of each training iteration and of each whole evaluation.

    Rows are gathered over ranks, so the numbers are those of all responses. Keys are prefixed with
    the stage. Without a rollout in the step's outputs nothing is logged.
    """

    def __init__(self) -> None:
        self._evaluation: list[Row] = []

    @abstractmethod
    def rows(self, rollout: Rollout) -> list[Row]:
        """Return the rows of ``rollout``; they must be picklable and small."""

    @abstractmethod
    def summarise(self, rows: list[Row], stage: str) -> dict[str, float]:
        """Return numbers about ``rows`` (at least one) by key without the stage; NaN: undefined."""

    def on_iteration_summarised(self, rollout: Rollout, values: dict[str, float]) -> None:
        """Hook: a training iteration's numbers are known; extend or keep them."""

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Log the numbers of this iteration's rollout."""
        rollout = rollout_of(outputs)
        if rollout is None:
            return
        rows = gather(self.rows(rollout))
        values = self.summarise(rows, "train")
        self.on_iteration_summarised(rollout, values)
        named = {f"train/{name}": value for name, value in values.items()}
        log_iteration(pl_module, named, batch_size=len(rows))

    def on_validation_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Forget what an interrupted evaluation left."""
        self._evaluation = []

    def on_validation_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Keep the rows of this batch."""
        rollout = rollout_of(outputs)
        if rollout is not None:
            self._evaluation += self.rows(rollout)

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Log the numbers of the whole evaluation."""
        rows, self._evaluation = gather(self._evaluation), []
        if rows:
            stage = stage_of(trainer)
            values = self.summarise(rows, stage)
            named = {f"{stage}/{name}": value for name, value in values.items()}
            log_evaluation(pl_module, named, batch_size=len(rows))

    on_test_epoch_start = on_validation_epoch_start
    on_test_batch_end = on_validation_batch_end
    on_test_epoch_end = on_validation_epoch_end
