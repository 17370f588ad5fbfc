"""The last lines of a run: where its results lie, and how to go on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch import Callback
from lightning.pytorch.utilities.exceptions import SIGTERMException

from r1lit.callbacks.iteration_checkpoint import IterationCheckpoint
from r1lit.callbacks.stage import finished_iterations, order_callbacks, run_folder

SHOWN = ("curves.png", "summary.json", "metrics.jsonl", "responses.jsonl", "policy", "reward_model")
MORE = "more iterations: raise {} and add --ckpt_path last"


class Outcome(Callback):
    """Says at the end of a fit, of Ctrl-C or of an error what the run folder holds.

    The command line adds it to every run.
    """

    position = 3

    def __init__(self) -> None:
        self._began = self._trained = False

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Come last, when everything is written."""
        order_callbacks(trainer)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """From now on there may be results."""
        self._began = True

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Count the evaluation before the first iteration as begun."""
        self._began = True

    def on_train_batch_start(self, *arguments: Any) -> None:
        """Note that there was something to train."""
        self._trained = True

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Print where the results are."""
        finished = finished_iterations(trainer, pl_module)
        summary = f"Finished after {finished} iterations"
        if not self._trained:
            summary = f"Nothing to train, {finished} iterations were made before"
        data: Any = getattr(trainer, "datamodule", None)
        in_epochs = getattr(data, "num_iterations", None) is None
        key = "trainer.max_epochs" if in_epochs else "data.num_iterations"
        self._print(trainer, summary, MORE.format(key))

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        """Print what is saved, if training had begun."""
        if not self._began or trainer.state.fn != "fit":
            return
        finished = finished_iterations(trainer, pl_module)
        how = "Stopped by an error"
        if isinstance(exception, KeyboardInterrupt):
            how = "Interrupted"
        elif isinstance(exception, SIGTERMException):
            how = "Stopped by SIGTERM"
        last = last_checkpoint(trainer)
        if last is None:
            go_on = "no checkpoint was saved: the same command with --ckpt_path last begins again"
        else:
            go_on = "go on from its last checkpoint: the same command with --ckpt_path last"
        self._print(trainer, f"{how} after {finished} iterations", go_on)

    def _print(self, trainer: pl.Trainer, summary: str, go_on: str) -> None:
        folder = run_folder(trainer)
        if not trainer.is_global_zero or folder is None or getattr(trainer, "fast_dev_run", False):
            return
        names = [name for name in SHOWN if (folder / name).exists()]
        print(f"{summary}: {folder}", file=sys.stderr)
        if names:
            print(f"  {', '.join(names)}", file=sys.stderr)
        print(f"  {go_on}", file=sys.stderr, flush=True)


def last_checkpoint(trainer: pl.Trainer) -> Path | None:
    """Return the newest checkpoint of a run, None if there is none."""
    callbacks: list[Any] = trainer.callbacks  # type: ignore[attr-defined]
    for callback in callbacks:
        path = callback.last_path(trainer) if isinstance(callback, IterationCheckpoint) else None
        if path is not None and path.exists():
            return path
    return None
