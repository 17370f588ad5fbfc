"""R1 replaces the reference by the policy every 400 updates."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
from lightning.pytorch import Callback
from lightning.pytorch.utilities import rank_zero_warn

from r1lit.callbacks.stage import finished_iterations


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
        if every_n_iterations < 1:
            raise ValueError(f"every_n_iterations={every_n_iterations} must be at least 1")
        self.every_n_iterations = every_n_iterations

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Check that the module can refresh a reference, before a model is loaded.

        Raises:
            ValueError: If it has no ``refresh_reference``.
        """
        if stage != "fit":
            return
        if not callable(getattr(pl_module, "refresh_reference", None)):
            raise ValueError(
                f"ReferenceRefresh needs a module with refresh_reference(); "
                f"{type(pl_module).__name__} has none: remove the callback"
            )

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Warn if there is no reference, now that ``configure_model`` has run."""
        if getattr(pl_module, "reference", None) is None:
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
        if getattr(pl_module, "reference", None) is None:
            return
        if finished_iterations(trainer, pl_module) % self.every_n_iterations == 0:
            pl_module.refresh_reference()  # type: ignore[operator]
