"""The clipped surrogate of PPO, min(rho A, clip(rho, 1 - eps_low, 1 + eps_high) A).

    B rows (responses)   T response tokens

PPO (1707.06347) Eq. 7, with the two sides of the clip set apart as in DAPO (2503.14476) Eq. 10. The
min makes the clip one-sided: it acts where A > 0 and rho > 1 + eps_high, or where A < 0 and
rho < 1 - eps_low, and there the surrogate is constant and its gradient 0. From eps_low = 1 on the
lower side never acts, since rho > 0 (R1: epsilon = 10, so rho is bounded to [-9, 11]).

Worked example, eps = 0.2: rho = 1.5 gives 1.2 A for A > 0 and 1.5 A for A < 0; rho = 0.5 gives
0.5 A for A > 0 and 0.8 A for A < 0.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from r1lit.objectives.base import LossInputs, Objective


def is_clipped_BT(
    log_ratio_BT: Tensor, advantage_BT: Tensor, *, epsilon_low: float, epsilon_high: float
) -> Tensor:
    """Return where the min picks the clipped branch, as booleans.

    Decided in logs, so a ratio too large for its float type still differs from one that is not.
    """
    log_low = math.log1p(-epsilon_low) if epsilon_low < 1 else -math.inf
    log_high = math.log1p(epsilon_high)
    above_BT = (advantage_BT > 0) & (log_ratio_BT > log_high)
    below_BT = (advantage_BT < 0) & (log_ratio_BT < log_low)
    return above_BT | below_BT


def clipped_surrogate_BT(
    log_ratio_BT: Tensor, advantage_BT: Tensor, *, epsilon_low: float, epsilon_high: float
) -> Tensor:
    """Return min(rho A, clip(rho) A).

    Where the ratio is clipped, or A is 0, it is never computed: exp of a whole-output log-ratio may
    overflow, and a 0 gradient through an infinity is a NaN.
    """
    clipped_BT = is_clipped_BT(
        log_ratio_BT, advantage_BT, epsilon_low=epsilon_low, epsilon_high=epsilon_high
    )
    ratio_BT = torch.where(clipped_BT | (advantage_BT == 0), 0.0, log_ratio_BT).exp()
    ratio_BT = torch.where(clipped_BT & (advantage_BT > 0), 1 + epsilon_high, ratio_BT)
    ratio_BT = torch.where(clipped_BT & (advantage_BT < 0), 1 - epsilon_low, ratio_BT)
    return ratio_BT * advantage_BT


class ClippedObjective(Objective):
    """An objective whose surrogate is PPO's clip; subclasses name ratio and aggregation.

    Args:
        epsilon_low: the ratio is clipped from below at 1 - epsilon_low.
        epsilon_high: the ratio is clipped from above at 1 + epsilon_high.
        **options: of ``Objective``: beta, kl, advantage.
    """

    def __init__(self, *, epsilon_low: float, epsilon_high: float, **options: Any) -> None:
        super().__init__(**options)
        check_clip("epsilon_low", epsilon_low)
        check_clip("epsilon_high", epsilon_high)
        self.epsilon_low = epsilon_low
        self.epsilon_high = epsilon_high
        self._clip = {"epsilon_low": epsilon_low, "epsilon_high": epsilon_high}

    def surrogate_BT(self, inputs: LossInputs) -> Tensor:
        """Return min(rho A, clip(rho) A)."""
        log_ratio_BT, advantage_BT = self.log_ratio_and_advantage(inputs)
        return clipped_surrogate_BT(log_ratio_BT, advantage_BT, **self._clip)

    def is_clipped_BT(self, inputs: LossInputs) -> Tensor:
        """Return where the clipped branch is picked."""
        log_ratio_BT, advantage_BT = self.log_ratio_and_advantage(inputs)
        return is_clipped_BT(log_ratio_BT, advantage_BT, **self._clip)


class SymmetricClip(ClippedObjective):
    """A clip to [1 - epsilon, 1 + epsilon].

    Args:
        epsilon: half the clip's width; may exceed 1.
        **options: of ``Objective``: beta, kl, advantage.
    """

    def __init__(self, *, epsilon: float = 0.2, **options: Any) -> None:
        check_clip("epsilon", epsilon)
        super().__init__(epsilon_low=epsilon, epsilon_high=epsilon, **options)
        self.epsilon = epsilon


def check_clip(name: str, value: float) -> None:
    """Raise a ValueError unless ``value`` is 0 or above."""
    if not value >= 0:
        raise ValueError(f"{name}={value}: a clip must be 0 or above (R1 uses 10)")
