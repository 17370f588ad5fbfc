"""The configuration of a training run: saved beside it, and compared when it is resumed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import lightning.pytorch as pl
import yaml
from lightning.pytorch.cli import SaveConfigCallback
from lightning.pytorch.utilities import rank_zero_warn

COMPARED = ("model", "data")
CHANGES_NO_NUMBER = {
    "num_iterations",
    "micro_batch_tokens",
    "gradient_checkpointing",
    "max_rows",
    "compile",
}
"""Keys that may differ on resume without a word: a longer run, another split of the same work."""


class RunConfig(SaveConfigCallback):
    """Writes ``config.yaml`` when fitting, and keeps model's and data's half in the checkpoint.

    A run that resumes with other values is refused, in one line that says what changed. With
    ``resume_changed: true`` it goes on with the new ones, after a warning: Lightning restores
    optimiser and scheduler from the checkpoint, learning rates among them.
    """

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Save when fitting."""
        self._fitting = stage == "fit"
        if stage == "fit":
            super().setup(trainer, pl_module, stage)

    def state_dict(self) -> dict[str, Any]:
        """Return what is compared on resume."""
        return {"config": self._compared()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Compare with the run that wrote the checkpoint.

        Raises:
            ValueError: naming each key that changed, its old and its new value.
        """
        if not self._fitting:
            return
        changed = list(differences(state_dict["config"], self._compared()))
        if not changed:
            return
        said = ", ".join(f"{key} was {old} and is {new}" for key, old, new in changed[:8])
        more = f" and {len(changed) - 8} more" if len(changed) > 8 else ""
        if getattr(self.config, "resume_changed", False):
            rank_zero_warn(f"ckpt_path: going on although {said}{more}")
            return
        raise ValueError(
            f"ckpt_path: the checkpoint is of a run with another configuration: {said}{more}; set"
            " it back, begin a new run in another folder, or go on with --resume_changed true"
        )

    def _compared(self) -> dict[str, Any]:
        config = yaml.safe_load(self.parser.dump(self.config, skip_none=False))
        return {half: config.get(half) for half in COMPARED}


def differences(old: Any, new: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield keys, by dots, at which two configurations differ, with both values.

    >>> list(differences({"a": {"lr": 1, "b": 2}}, {"a": {"lr": 3, "b": 2}}))
    [('a.lr', 1, 3)]
    """
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in sorted({*old, *new}):
            if name not in CHANGES_NO_NUMBER:
                path = f"{key}.{name}" if key else str(name)
                yield from differences(old.get(name), new.get(name), path)
    elif old != new:
        yield key, old, new
