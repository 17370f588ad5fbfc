"""A progress bar that shows what an R1 run is watched for."""

from __future__ import annotations

import math
import sys
import time
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import TQDMProgressBar
from lightning.pytorch.callbacks.progress.tqdm_progress import Tqdm

from r1lit.callbacks import keys
from r1lit.callbacks.stage import order_callbacks

_SHOWN = (
    ("acc", f"train/{keys.REWARD_ACCURACY}", "{:.2f}"),
    ("loss", "train/loss", "{:.4f}"),
    ("len", f"train/{keys.LENGTH_MEAN}", "{:.0f}"),
    ("words", f"train/{keys.REFLECTION_PER_RESPONSE}", "{:.2f}"),
    ("val", f"val/{keys.PASS_AT_1}", "{:.3f}"),
)


class R1ProgressBar(TQDMProgressBar):
    """Shows iteration, train accuracy, mean length, reflection words, last val pass@1, time left.

    On a terminal it is a tqdm bar; elsewhere (a log file, a pipe) one plain line at a time:

        iteration 12/30  acc 0.61  len 182  words 0.34  val 0.580  3:10 left

    ``loss`` stands in for the accuracy where none is logged (SFT). The time left is judged by the
    iterations made since this process started, evaluations included.

    Args:
        refresh_rate: Show every this many iterations, after each evaluation and at the end.
    """

    position = 1

    def __init__(self, refresh_rate: int = 1) -> None:
        super().__init__(refresh_rate=refresh_rate)
        self._plain = not sys.stdout.isatty()
        self._started: float | None = None
        self._first = 0
        self._iteration = 0

    @property
    def is_enabled(self) -> bool:
        """Whether tqdm's bars are drawn."""
        return super().is_enabled and not self._plain

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Come after the callbacks whose numbers are shown."""
        super().setup(trainer, pl_module, stage)
        order_callbacks(trainer)

    def init_train_tqdm(self) -> Tqdm:
        """Return the training bar: the shared status line behind a bar."""
        bar = super().init_train_tqdm()
        bar.bar_format = "{bar:20} {desc}"
        return bar

    def on_train_epoch_start(self, trainer: pl.Trainer, *arguments: Any) -> None:
        """Stop the clock until the epoch's first iteration."""
        super().on_train_epoch_start(trainer, *arguments)
        self._started = None

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Start the clock at this process's first iteration, which after a resume is no epoch's."""
        super().on_train_batch_start(trainer, pl_module, batch, batch_idx)
        if self._started is None:
            self._started = time.monotonic()
            self._first = batch_idx

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Show the iteration just finished."""
        self._iteration = batch_idx + 1
        due = self.refresh_rate > 0 and self._iteration % self.refresh_rate == 0
        if due or self._iteration == trainer.num_training_batches:
            if not self._plain and self._train_progress_bar is not None:
                self._train_progress_bar.n = self._iteration
            self._show(trainer)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Leave the last line as it is."""

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Show the new val pass@1."""
        if not self._plain:
            self.val_progress_bar.close()
        self.reset_dataloader_idx_tracker()
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            self._show(trainer)

    def status(self, trainer: pl.Trainer) -> str:
        """Return the line shown."""
        total = trainer.num_training_batches
        parts = [f"iteration {self._iteration}/{'?' if math.isinf(total) else int(total)}"]
        metrics = trainer.callback_metrics
        for label, key, form in _SHOWN:
            if label == "loss" and f"train/{keys.REWARD_ACCURACY}" in metrics:
                continue
            if key in metrics and math.isfinite(float(metrics[key])):
                parts.append(f"{label} {form.format(float(metrics[key]))}")
        num_made = self._iteration - self._first
        if self._started is not None and num_made > 0 and not math.isinf(total):
            each = (time.monotonic() - self._started) / num_made
            parts.append(f"{as_clock(each * (total - self._iteration))} left")
        return "  ".join(parts)

    def _show(self, trainer: pl.Trainer) -> None:
        if self._plain:
            if trainer.is_global_zero and self._enabled and self.refresh_rate > 0:
                print(self.status(trainer), flush=True)
        elif self._train_progress_bar is not None:
            self._train_progress_bar.set_description_str(self.status(trainer))


def as_clock(seconds: float) -> str:
    """Return ``3:10`` or ``2:03:10``.

    >>> as_clock(190), as_clock(7390)
    ('3:10', '2:03:10')
    """
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"
