"""Evaluations before the first iteration and after the last: the ends of every curve."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
from lightning.pytorch import Callback

from r1lit.callbacks.stage import order_callbacks


class EvaluateFirst(Callback):
    """Runs the whole validation before the first iteration of a fresh run, and after the last.

    Before the first one, Lightning's sanity check will not do: what it logs is dropped. This is the
    training loop's own validation, entered as ``_TrainingEpochLoop.on_advance_end`` enters it:
    metrics are logged at step 0 and callbacks see an ordinary evaluation with no finished
    iterations. Lightning resets the validation loop's counters when the epoch starts, so later
    evaluations and checkpoints do not see it. A resumed run skips it. After the last iteration
    Lightning validates as usual, be it a multiple of ``val_check_interval`` or not.

    It runs in ``on_train_start``, after that hook of all other callbacks and before the module's:
    modules must be ready by then (``setup``, ``configure_model``, ``on_fit_start``).
    """

    position = 2

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Come after the callbacks that prepare themselves in ``on_train_start``."""
        order_callbacks(trainer)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Evaluate, unless iterations have been made."""
        self._before_last(trainer, trainer.fit_loop.epoch_loop.batch_progress.current.ready)
        epoch_loop = trainer.fit_loop.epoch_loop
        resumed = epoch_loop.total_batch_idx >= 0 or int(getattr(pl_module, "iteration", 0)) > 0
        if resumed or not trainer.enable_validation:
            return
        connector = trainer._logger_connector
        first_loop_iter = connector._first_loop_iter
        trainer.validating = True
        epoch_loop.val_loop.run()
        trainer.training = True
        connector._first_loop_iter = first_loop_iter

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Have the last iteration evaluated; its checkpoint is then saved behind the evaluation."""
        self._before_last(trainer, batch_idx + 1)

    def _before_last(self, trainer: pl.Trainer, num_batches: int) -> None:
        """Make an evaluation due, also on resume, where Lightning tests if the last one was."""
        last_epoch = trainer.current_epoch + 1 == trainer.max_epochs
        if last_epoch and num_batches == trainer.num_training_batches:
            trainer.val_check_batch = 1
