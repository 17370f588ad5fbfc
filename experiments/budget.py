"""A training run that ends with a budget, and whose learning rate falls with it."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import lightning.pytorch as pl

from r1lit.callbacks.base import finished_iterations
from r1lit.files import replace_file


class Budget(pl.Callback, ABC):
    """Adds up what a run spends in ``path``; ends it with the iteration that spends ``limit``.

    The count is part of the checkpoint. One process: a second one's work is not seen.

    Args:
        path: of the count.
        limit: in the unit that is counted.
        decay_to: share of the learning rate that is left at the end: it falls by a cosine of the
            share of ``limit`` that is spent, alike for runs whose number of updates differs.
    """

    unit: str
    """Counted, as a key of the count."""

    def __init__(self, path: str, limit: float, decay_to: float = 1.0) -> None:
        if not limit > 0:
            raise ValueError(f"limit: {limit} is not above 0")
        if not 0 <= decay_to <= 1:
            raise ValueError(f"decay_to: {decay_to} is no share of the rate, from 0 to 1")
        self.path = Path(path)
        self.limit = limit
        self.decay_to = decay_to
        self.counts: dict[str, float] = {self.unit: 0}

    @abstractmethod
    def count(self, pl_module: pl.LightningModule, outputs: Any, batch: Any) -> dict[str, float]:
        """Return what an iteration spent, by key; ``unit`` is one of them.

        Raises:
            ValueError: if the module does not train on what is counted.
        """

    def state_dict(self) -> dict[str, Any]:
        """Return the count."""
        return dict(self.counts)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on counting."""
        self.counts = dict(state_dict)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Set the rate; a run that had spent its budget when it was killed ends here.

        Raises:
            ValueError: if there are several processes.
        """
        if trainer.world_size > 1:
            name = type(self).__name__
            raise ValueError(f"devices: {trainer.world_size} processes; {name} sees one")
        self._follow(trainer)

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Add an iteration."""
        for key, spent in self.count(pl_module, outputs, batch).items():
            self.counts[key] = self.counts.get(key, 0) + spent
        self._follow(trainer)

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write the count: the run is finished then, its policy exported."""
        content = {**self.state_dict(), "iterations": finished_iterations(trainer, pl_module)}
        content |= {"updates": trainer.global_step, "limit": self.limit}
        replace_file(self.path, (json.dumps(content) + "\n").encode())

    def _follow(self, trainer: pl.Trainer) -> None:
        spent = min(self.counts[self.unit] / self.limit, 1.0)
        share = self.decay_to + (1 - self.decay_to) * (1 + math.cos(math.pi * spent)) / 2
        for optimizer in trainer.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = share * group.setdefault("initial_lr", group["lr"])
        trainer.should_stop |= spent == 1.0
