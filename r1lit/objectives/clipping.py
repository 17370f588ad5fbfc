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

import torch
from torch import Tensor

from r1lit.objectives.advantages import AdvantageEstimator
from r1lit.objectives.base import Objective
from r1lit.objectives.kl import KLName


def clip_acts_BT(
    log_ratio_BT: Tensor, advantage_B: Tensor, *, epsilon_low: float, epsilon_high: float
) -> Tensor:
    """Return where the min picks the clipped branch, as booleans.

    Decided in logs, so a ratio too large for its float type is still told from one that is not.
    """
    log_low = math.log1p(-epsilon_low) if epsilon_low < 1 else -math.inf
    log_high = math.log1p(epsilon_high)
    advantage_B1 = advantage_B[:, None]
    above_BT = (advantage_B1 > 0) & (log_ratio_BT > log_high)
    below_BT = (advantage_B1 < 0) & (log_ratio_BT < log_low)
    return above_BT | below_BT


def clipped_surrogate_BT(
    log_ratio_BT: Tensor, advantage_B: Tensor, *, epsilon_low: float, epsilon_high: float
) -> Tensor:
    """Return min(rho A, clip(rho) A).

    Where the clip acts, or A is 0, the ratio is never computed: exp of a whole-output log-ratio may
    overflow, and a 0 gradient through an infinity is a NaN.
    """
    advantage_B1 = advantage_B[:, None]
    acts_BT = clip_acts_BT(
        log_ratio_BT, advantage_B, epsilon_low=epsilon_low, epsilon_high=epsilon_high
    )
    ratio_BT = torch.where(acts_BT | (advantage_B1 == 0), 0.0, log_ratio_BT).exp()
    ratio_BT = torch.where(acts_BT & (advantage_B1 > 0), 1 + epsilon_high, ratio_BT)
    ratio_BT = torch.where(acts_BT & (advantage_B1 < 0), 1 - epsilon_low, ratio_BT)
    return ratio_BT * advantage_B1


class ClippedObjective(Objective):
    """An objective whose surrogate is PPO's clip; subclasses say which ratio and which weight."""

    def __init__(
        self,
        *,
        epsilon_low: float,
        epsilon_high: float,
        beta: float = 0.0,
        kl: KLName = "k3",
        advantage: AdvantageEstimator | None = None,
    ) -> None:
        super().__init__(beta=beta, kl=kl, advantage=advantage)
        for name, value in (("epsilon_low", epsilon_low), ("epsilon_high", epsilon_high)):
            if not value >= 0:
                raise ValueError(f"{name}={value}: a clip must be 0 or above (R1 uses 10)")
        self.epsilon_low = epsilon_low
        self.epsilon_high = epsilon_high

    def surrogate_BT(
        self, *, logp_BT: Tensor, logp_old_BT: Tensor, advantage_B: Tensor, mask_BT: Tensor
    ) -> Tensor:
        """Return min(rho A, clip(rho) A)."""
        return clipped_surrogate_BT(
            self.log_ratio_BT(logp_BT=logp_BT, logp_old_BT=logp_old_BT, mask_BT=mask_BT),
            advantage_B,
            epsilon_low=self.epsilon_low,
            epsilon_high=self.epsilon_high,
        )

    def clip_acts_BT(
        self, *, logp_BT: Tensor, logp_old_BT: Tensor, advantage_B: Tensor, mask_BT: Tensor
    ) -> Tensor:
        """Return where the clipped branch is picked."""
        acts_BT = clip_acts_BT(
            self.log_ratio_BT(logp_BT=logp_BT, logp_old_BT=logp_old_BT, mask_BT=mask_BT),
            advantage_B,
            epsilon_low=self.epsilon_low,
            epsilon_high=self.epsilon_high,
        )
        return acts_BT & mask_BT
