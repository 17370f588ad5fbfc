"""A schedule that falls over the whole run, its length, and the rates that a schedule leads to."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Sequence

from lightning.pytorch import Trainer
from lightning.pytorch.utilities.rank_zero import rank_zero_only, rank_zero_warn
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from r1lit.errors import check_at_least, check_between, in_one_line

MOST_UPDATES = 100_000


class CosineOverRun(LRScheduler):
    """Half a cosine from the optimiser's rate at the first update to a share of it at the end.

    Where it ends follows from the run: a module has it ``fall_over`` the iterations that the data
    make, times ``max_epochs`` and the updates of an iteration. R1's supervised stages and
    distillations fall to a tenth (Nature 645:633).

    Args:
        optimizer: whose rates it sets.
        final_share: of the optimiser's rate, after the last update.
        warmup: updates before the cosine, whose rates rise in equal steps to the optimiser's.
    """

    def __init__(self, optimizer: Optimizer, final_share: float = 0.1, warmup: int = 0) -> None:
        check_between("final_share", final_share, 0, 1)
        check_at_least("warmup", warmup, 0)
        self.final_share = final_share
        self.warmup = warmup
        self.num_updates = 1
        super().__init__(optimizer)

    def fall_over(self, num_updates: float) -> None:
        """End after this many updates.

        Raises:
            ValueError: if they are infinite, or the warm-up does not end before.
        """
        if not math.isfinite(num_updates):
            raise ValueError(
                "trainer.max_epochs: without one the run has no end, towards which CosineOverRun"
                " could fall; set it"
            )
        self.num_updates = max(int(num_updates), 1)
        if self.warmup >= self.num_updates:
            raise ValueError(
                f"warmup: {self.warmup} updates are the whole run, which has {self.num_updates};"
                " set fewer"
            )

    def get_lr(self) -> list[float | Tensor]:
        """Return the next update's rates."""
        if self.last_epoch < self.warmup:
            return [rate * (self.last_epoch + 1) / (self.warmup + 1) for rate in self.base_lrs]
        progress = (self.last_epoch - self.warmup) / max(self.num_updates - self.warmup, 1)
        progress = min(progress, 1.0)
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


def updates_made(scheduler: LRScheduler) -> int:
    """Return how many updates a scheduler has followed; ``ChainedScheduler`` counts in its parts.

    >>> from torch import nn, optim
    >>> optimizer = optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1)
    >>> decay = optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    >>> updates_made(optim.lr_scheduler.ChainedScheduler([decay]))
    0
    """
    counted = getattr(scheduler, "last_epoch", None)
    parts: Sequence[LRScheduler] = getattr(scheduler, "_schedulers", ())
    if counted is None and parts:
        counted = updates_made(parts[0])
    return counted or 0


def rates_ahead(scheduler: LRScheduler, num_updates: int) -> list[float]:
    """Return the rate of each of the next updates, from a copy of the scheduler.

    Raises:
        ValueError: if the scheduler has no rate for one of them, as ``OneCycleLR`` after its end.
    """
    optimizer = scheduler.optimizer
    stand_in = object.__new__(type(optimizer))
    groups = [{**group, "params": [], "lr": float(group["lr"])} for group in optimizer.param_groups]
    stand_in.__dict__ |= {"param_groups": groups, "defaults": optimizer.defaults}
    ahead = copy.deepcopy(scheduler, {id(optimizer): stand_in})
    rates = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of an optimiser that makes no steps
        for update in range(num_updates):
            rates.append(float(groups[0]["lr"]))
            try:
                ahead.step()
            except ValueError as error:
                raise ValueError(
                    f"model.lr_scheduler: {type(scheduler).__name__} fails after update"
                    f" {update + 1} of the {num_updates} to make: {in_one_line(error)}"
                ) from error
    return rates


def print_rates(scheduler: LRScheduler, num_updates: float) -> None:
    """Print the learning rates that a run will have, and warn if the optimiser's is never reached.

    ``num_updates`` are those of the whole run; the scheduler knows how many are made.
    ``ReduceLROnPlateau``, a run without an end and one of over 100,000 updates print nothing.

    Raises:
        ValueError: see ``rates_ahead``.
    """
    num_made = updates_made(scheduler)
    num_updates -= num_made
    if isinstance(scheduler, ReduceLROnPlateau) or not 0 < num_updates <= MOST_UPDATES:
        return
    rates = rates_ahead(scheduler, int(num_updates))
    first, highest, last = rates[0], max(rates), rates[-1]
    shown = f"from {first:.3g} to {last:.3g}"
    if math.isclose(min(rates), highest):
        shown = f"{first:.3g}"
    elif highest > max(first, last):
        shown += f", highest {highest:.3g} at update {rates.index(highest) + 1}"
    rank_zero_only(print)(f"Learning rate over {len(rates):,} updates: {shown}")
    given = float(scheduler.optimizer.param_groups[0].get("initial_lr", highest))
    if num_made == 0 and highest <= 0.5 * given:
        rank_zero_warn(
            f"model.lr_scheduler: {type(scheduler).__name__} keeps the learning rate at"
            f" {highest:.3g} or less in all {len(rates):,} updates, while the optimizer's lr is"
            f" {given:.3g}; look at its init_args (a configuration before may have set some)"
        )
