"""A learning rate that warms up over a share of the run and then falls along a cosine."""

from __future__ import annotations

from torch import Tensor
from torch.optim import Optimizer

from r1lit.errors import check_between
from r1lit.modules import CosineOverRun


class WarmedCosine(CosineOverRun):
    """`CosineOverRun`, times a linear warm-up over the first updates.

    Args:
        optimizer: whose rates it sets.
        warm_up: the share of the run's updates that warm up.
        final_share: of the first rate, after the last update.
    """

    def __init__(
        self, optimizer: Optimizer, warm_up: float = 0.1, final_share: float = 0.0
    ) -> None:
        check_between("warm_up", warm_up, 0, 1)
        self.warm_up = warm_up
        super().__init__(optimizer, final_share)

    def fall_over(self, num_updates: float) -> None:
        """End after this many updates; the first update's rate changes with them."""
        super().fall_over(num_updates)
        for group, rate in zip(self.optimizer.param_groups, self.get_lr(), strict=True):
            group["lr"] = rate

    def get_lr(self) -> list[float | Tensor]:
        """Return the rates of the next update."""
        share = min(1.0, (self.last_epoch + 1) / max(1.0, self.warm_up * self.num_updates))
        return [share * rate for rate in super().get_lr()]
