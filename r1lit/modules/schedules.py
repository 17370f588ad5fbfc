"""A schedule that falls over the whole run, and how many updates that has."""

from __future__ import annotations

import math

from lightning.pytorch import Trainer
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from r1lit.errors import check_between


class CosineOverRun(LRScheduler):
    """Half a cosine from the optimiser's rate at the first update to a share of it at the end.

    Where it ends follows from the run: a module has it ``fall_over`` the iterations that the data
    make, times ``max_epochs`` and the updates of an iteration. R1's supervised stages and
    distillations fall to a tenth (Nature 645:633).

    Args:
        optimizer: whose rates it sets.
        final_share: of the first rate, after the last update.
    """

    def __init__(self, optimizer: Optimizer, final_share: float = 0.1) -> None:
        check_between("final_share", final_share, 0, 1)
        self.final_share = final_share
        self.num_updates = 1
        super().__init__(optimizer)

    def fall_over(self, num_updates: float) -> None:
        """End after this many updates.

        Raises:
            ValueError: if they are infinite.
        """
        if not math.isfinite(num_updates):
            raise ValueError(
                "trainer.max_epochs: without one the run has no end, towards which CosineOverRun"
                " could fall; set it"
            )
        self.num_updates = max(int(num_updates), 1)

    def get_lr(self) -> list[float | Tensor]:
        """Return the next update's rates."""
        progress = min(self.last_epoch / self.num_updates, 1.0)
        share = (1 + math.cos(math.pi * progress)) / 2
        share = self.final_share + (1 - self.final_share) * share
        return [rate * share for rate in self.base_lrs]


def updates_of_run(trainer: Trainer, per_iteration: int) -> float:
    """Return the updates of the whole run, which the data, ``max_epochs`` and ``max_steps`` decide.

    Infinity if nothing ends it.
    """
    epochs, steps = trainer.max_epochs or -1, trainer.max_steps
    updates = trainer.num_training_batches * per_iteration * epochs
    return min(count for count in (updates, steps, math.inf) if count >= 0)
