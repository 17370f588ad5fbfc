"""Schedules: evaluations at both ends of a run, and updates of the reference policy."""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

import lightning.pytorch as pl
from lightning.pytorch import Callback
from lightning.pytorch.utilities import rank_zero_warn

from r1lit.callbacks.base import (
    counted_iterations,
    finished_iterations,
    order_callbacks,
    rollout_of,
)
from r1lit.errors import check_at_least
from r1lit.protocols import RefreshesReference

RARELY = 0.05


class EvaluateFirst(Callback):
    """Runs the whole validation before the first iteration of a fresh run, and after the last.

    Before the first one, Lightning's sanity check will not do: what it logs is dropped. This is the
    training loop's own validation, entered as ``_TrainingEpochLoop.on_advance_end`` enters it:
    metrics are logged at step 0 and callbacks see an ordinary evaluation with no finished
    iterations. Lightning resets the validation loop's counters when the epoch starts, so later
    evaluations and checkpoints do not see it. A resumed run skips it. After the last iteration
    Lightning validates as usual, be it a multiple of ``val_check_interval`` or not.

    Where verifiers read an answer in fewer than 5 % of the first responses, it warns: an accuracy
    of 0 then says that the prompt asks for another form, not that problems are too hard.

    It runs in ``on_train_start``, after that hook of all other callbacks and before the module's:
    modules must be ready by then (``setup``, ``configure_model``, ``on_fit_start``).
    """

    position = 2

    def __init__(self) -> None:
        self._unread: Counter[str] | None = None
        self._num_responses = 0

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Come after the callbacks that prepare themselves in ``on_train_start``."""
        order_callbacks(trainer)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Evaluate, unless iterations have been made."""
        self._before_last(trainer, trainer.fit_loop.epoch_loop.batch_progress.current.ready)
        epoch_loop = trainer.fit_loop.epoch_loop
        resumed = epoch_loop.total_batch_idx >= 0 or bool(counted_iterations(pl_module))
        if resumed or not trainer.enable_validation:
            return
        connector = trainer._logger_connector
        first_loop_iter = connector._first_loop_iter
        trainer.validating = True
        self._unread, self._num_responses = Counter(), 0
        epoch_loop.val_loop.run()
        trainer.training = True
        connector._first_loop_iter = first_loop_iter
        unread, self._unread = self._unread, None
        self._warn_of(unread)

    def on_validation_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, *_: Any
    ) -> None:
        """Count the responses of the first evaluation, and why no answer was read in them."""
        rollout = rollout_of(outputs)
        if self._unread is None or rollout is None:
            return
        self._num_responses += len(rollout.responses)
        verdicts = [response.verdict for response in rollout.responses]
        self._unread.update(v.reason for v in verdicts if v.status == "unparsed")

    def _warn_of(self, unread: Counter[str]) -> None:
        num_read = self._num_responses - unread.total()
        if not unread or num_read > RARELY * self._num_responses:
            return
        (reason, count), *_ = unread.most_common(1)
        rank_zero_warn(
            f"data.prompts: verifiers read an answer in {num_read} of {self._num_responses}"
            f" responses before training ({count} times: {reason}), so accuracy can hardly be"
            " earned; let data.prompts.wording ask for a form that the verifier reads"
            " (docs/TROUBLESHOOTING.md#unread_answers)"
        )

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


class ReferenceRefresh(Callback):
    """Calls ``pl_module.refresh_reference()`` after every n-th iteration.

    R1 refreshes every 400 steps (Methods). Its step is one update on 512 responses and a rollout
    makes 16 of them, so that is 25 iterations. The refresh comes before the iteration's evaluation
    and checkpoint, so a checkpoint holds the reference that the next iteration uses. Without a
    reference, which ``objective.beta`` 0 makes none of, there is a warning and nothing to do.

    Args:
        every_n_iterations: How often.
    """

    def __init__(self, every_n_iterations: int = 25) -> None:
        check_at_least("every_n_iterations", every_n_iterations, 1)
        self.every_n_iterations = every_n_iterations

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Check that the module can refresh a reference, before a model is loaded.

        Raises:
            ValueError: If it has no ``refresh_reference``.
        """
        if stage != "fit":
            return
        if not isinstance(pl_module, RefreshesReference):
            raise ValueError(
                f"ReferenceRefresh needs a module with refresh_reference(); "
                f"{type(pl_module).__name__} has none: remove the callback"
            )

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Warn if there is no reference, now that ``configure_model`` has run."""
        if pl_module.reference is None:
            rank_zero_warn(
                "ReferenceRefresh does nothing: objective.beta: 0 leaves out the KL term, so there"
                " is no reference"
            )

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Refresh when the number of finished iterations is a multiple of n."""
        if pl_module.reference is None:
            return
        if finished_iterations(trainer, pl_module) % self.every_n_iterations == 0:
            cast(RefreshesReference, pl_module).refresh_reference()
