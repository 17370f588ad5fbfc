"""The policy of the best evaluation, as a Hugging Face folder; and a check of early stopping."""

from __future__ import annotations

import math
from typing import Any, Literal

import lightning.pytorch as pl
from lightning.pytorch.callbacks import EarlyStopping

from r1lit.callbacks.base import finished_iterations, folder_of
from r1lit.callbacks.checkpoints import ExportHuggingFace
from r1lit.errors import check_one_of
from r1lit.files import replace_json

HELD_OUT = "val/"


class KeepBest(ExportHuggingFace):
    """Writes policy and tokenizer whenever a held-out number is better than ever before in the run.

    ``best`` in the run folder holds the policy and ``best.json`` with the number, its value and the
    finished iterations. A number that only equals the best changes nothing. An evaluation before
    the first iteration counts. A resumed run knows the best so far.

    The maximum over many evaluations is optimistic: evaluate the folder again on other problems
    before you report it.

    Args:
        monitor: The number, by its name in docs/METRICS.md; one of an evaluation.
        mode: ``max`` if larger is better, ``min`` for a loss.
        dirpath: Where; ``best`` in the run folder if left out.
        dtype: As in ExportHuggingFace.

    Raises:
        ValueError: If the number is none of an evaluation, or no evaluation logs it.
    """

    def __init__(
        self,
        monitor: str = "val/pass_at_1",
        mode: Literal["max", "min"] = "max",
        dirpath: str | None = None,
        dtype: str | None = None,
    ) -> None:
        super().__init__(dirpath=dirpath, dtype=dtype)
        check_held_out("KeepBest", monitor)
        check_one_of("KeepBest.mode", mode, ("max", "min"))
        self.monitor, self.mode = monitor, mode
        self.best: float | None = None

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Find the folder."""
        self.dirpath = folder_of(self._given, trainer, self, "best")

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Leave the folder as the best evaluation left it."""

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Export, if this evaluation is the best."""
        if trainer.state.fn != "fit" or trainer.sanity_checking:
            return
        found = trainer.callback_metrics.get(self.monitor)
        if found is None:
            names = sorted(key for key in trainer.callback_metrics if key.startswith(HELD_OUT))
            raise ValueError(
                f"KeepBest.monitor: no evaluation logs {self.monitor!r}; there are"
                f" {', '.join(names) or 'none'}"
            )
        value = float(found)
        if not trainer.strategy.broadcast(self._is_better(value)):
            return
        self.best = value
        self.export(trainer, pl_module)
        if trainer.is_global_zero:
            finished = finished_iterations(trainer, pl_module)
            record = {"monitor": self.monitor, "value": value, "iteration": finished}
            replace_json(self.dirpath / "best.json", record)

    def _is_better(self, value: float) -> bool:
        if math.isnan(value) or self.best is None:
            return not math.isnan(value)
        return value > self.best if self.mode == "max" else value < self.best

    def state_dict(self) -> dict[str, Any]:
        """Return the best value so far, and of what it is."""
        return {"best": self.best, "monitor": self.monitor, "mode": self.mode}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from the best value so far, unless it is of another number or the other way."""
        own = self.state_dict()
        if all(state_dict.get(key, own[key]) == own[key] for key in ("monitor", "mode")):
            self.best = state_dict["best"]


def check_held_out(name: str, monitor: str | None) -> None:
    """Raise a ValueError unless a callback watches a number of an evaluation."""
    if monitor is None or not monitor.startswith(HELD_OUT):
        raise ValueError(
            f"{name}.monitor: {monitor!r} is no held-out number; evaluations log val/pass_at_1,"
            " val/loss and others (docs/METRICS.md)"
        )


def check_early_stopping(trainer: pl.Trainer) -> None:
    """Have every EarlyStopping look after each evaluation; refuse one that looks at training.

    With an evaluation after every iteration, Lightning would look at the end of the epoch alone.

    Raises:
        ValueError: naming the number that it monitors.
    """
    callbacks: list[Any] = trainer.callbacks  # type: ignore[attr-defined]
    for callback in callbacks:
        if isinstance(callback, EarlyStopping):
            check_held_out(type(callback).__name__, callback.monitor)
            if callback._check_on_train_epoch_end is None:
                callback._check_on_train_epoch_end = False
