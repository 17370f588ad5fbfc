"""Advantages from rewards, by groups.

    P prompts   G responses per prompt   B = P*G rows   T response tokens   |o| tokens of a response

The baseline of a group estimator is what the response's own group earned. All of them agree
on two things that the papers leave open: a group of equal rewards teaches nothing, so its
advantages are exactly 0 (not the rounding error of r - mean(r), which a division by a tiny std
would blow up to order one); and the mean is over the G responses of one prompt, never over the
whole rollout.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

import torch
from torch import Tensor

from r1lit.batches import Rollout
from r1lit.errors import check_at_least, check_one_of
from r1lit.objectives.terms import row_sum_B1


class AdvantageEstimator(ABC):
    """Turns a rollout's rewards into ``advantage_BT``, one number a response token.

    Subclass this for credit per token or per step; subclass ``GroupEstimator`` where an advantage
    is one number a response.
    """

    min_group_size: int = 1
    reads: tuple[str, ...] = ("reward_PG", "reward_BT")
    """Fields of a rollout, and names of its ``extra_BT``, that it is computed from."""

    @property
    def unscaled(self) -> AdvantageEstimator:
        """The estimator itself, or the one whose advantages it scales."""
        return self

    @abstractmethod
    def estimate(self, rollout: Rollout) -> Tensor:
        """Return ``advantage_BT``; what stands in the padding is not read.

        ``rollout.advantage_BT`` is still 0. Rewards are finite; others were rejected before.
        """


class GroupEstimator(AdvantageEstimator):
    """One number a response, from the rewards of its group. Subclasses write ``estimate_PG``.

    Rewards of a response's tokens (``rollout.reward_BT``) add to its reward, as RLOO's has the KL.
    """

    min_group_size: int = 2

    def estimate(self, rollout: Rollout) -> Tensor:
        """Return each response's advantage at every one of its tokens."""
        reward_PG = rollout.reward_PG
        if rollout.reward_BT is not None:
            token_B1 = row_sum_B1(rollout.reward_BT, rollout.sampled_BT)
            reward_PG = reward_PG + token_B1.view_as(reward_PG)
        advantage_B1 = self(reward_PG).reshape(-1, 1)
        return torch.where(rollout.sampled_BT, advantage_B1, 0.0)

    def __call__(self, reward_PG: Tensor) -> Tensor:
        """Return ``advantage_PG``; rows of equal rewards are exactly 0.

        Raises:
            ValueError: when G is below ``min_group_size``.
        """
        assert reward_PG.ndim == 2 and reward_PG.is_floating_point(), reward_PG
        group_size = reward_PG.shape[1]
        if group_size < self.min_group_size:
            raise ValueError(
                f"group_size={group_size}: {type(self).__name__} compares the responses of a "
                f"group with one another, so group_size must be at least {self.min_group_size}"
            )
        uniform_P1 = reward_PG.amin(1, keepdim=True) == reward_PG.amax(1, keepdim=True)
        return torch.where(uniform_P1, 0.0, self.estimate_PG(reward_PG))

    @abstractmethod
    def estimate_PG(self, reward_PG: Tensor) -> Tensor:
        """Return the advantages; rows of equal rewards may hold anything."""


class GroupNormalized(GroupEstimator):
    """A_i = (r_i - mean(r)) / (std(r) + std_epsilon), of GRPO (2402.03300, §4.1.2) and R1 (Eq. 3).

    The papers write std(r) and leave open which. Chosen: the *population* std, over G, for which
    the advantages of a mixed group have root mean square 1 whatever G is. TRL and verl divide by
    the *sample* std, over G - 1: advantages smaller by sqrt((G-1)/G), 3 % at G = 16, 29 % at G = 2.
    The papers print no epsilon; without one, equal rewards divide 0 by 0.

    Worked example, rewards (1, 0, 0, 0): mean 0.25, population std sqrt(3)/4 = 0.4330, advantages
    (1.7320, -0.5773, -0.5773, -0.5773); sample std 0.5, advantages (1.5, -0.5, -0.5, -0.5).

    Args:
        std_epsilon: added to the std.
        std: "population" divides the squares by G, "sample" by G - 1.
    """

    def __init__(
        self, std_epsilon: float = 1e-6, std: Literal["population", "sample"] = "population"
    ) -> None:
        check_at_least("std_epsilon", std_epsilon, 0, "1e-6 is usual")
        check_one_of("std", std, ("population", "sample"))
        self.std_epsilon = std_epsilon
        self.std = std

    def estimate_PG(self, reward_PG: Tensor) -> Tensor:
        """Return (r - mean) / (std + std_epsilon)."""
        correction = 1 if self.std == "sample" else 0
        std_P1 = reward_PG.std(1, keepdim=True, correction=correction)
        return (reward_PG - reward_PG.mean(1, keepdim=True)) / (std_P1 + self.std_epsilon)


class GroupCentered(GroupEstimator):
    """A_i = r_i - mean(r), of Dr. GRPO (2503.20783, §3.2): no division by the std.

    The std weighs the groups that are nearly all right or nearly all wrong up; leaving it out
    removes that bias. Equals (G-1)/G times ``LeaveOneOut``.

    Worked example, rewards (1, 0, 0, 0): advantages (0.75, -0.25, -0.25, -0.25).
    """

    def estimate_PG(self, reward_PG: Tensor) -> Tensor:
        """Return r - mean."""
        return reward_PG - reward_PG.mean(1, keepdim=True)


class LeaveOneOut(GroupEstimator):
    """A_i = r_i - mean of the others' rewards, of RLOO (Ahmadian et al. 2024, 2402.14740).

    The baseline does not contain r_i, so the policy gradient stays unbiased at every G. Equals
    G/(G-1) times ``GroupCentered``: the same direction, a learning rate apart.

    Worked example, rewards (1, 0, 0, 0): advantages (1, -1/3, -1/3, -1/3).
    """

    def estimate_PG(self, reward_PG: Tensor) -> Tensor:
        """Return r - (sum of r - r) / (G - 1)."""
        others_PG = reward_PG.sum(1, keepdim=True) - reward_PG
        return reward_PG - others_PG / (reward_PG.shape[1] - 1)


class MeanNormalized(GroupEstimator):
    """A_i = (r_i - mean(r)) / mean(r), of MaxRL (Tajwar et al. 2602.02710).

    For rewards of 0 and 1 the expected policy gradient is that of sum over k < G of pass@k / k, the
    expansion of log pass@1 up to order G - 1: with K of G right, the mean of grad log pi over those
    K less the mean over all. A problem that is rarely solved counts most.

    Left open, and chosen here: rewards may be any numbers from 0 up; a group that earned nothing
    has advantages of 0, baseline included (without a baseline the order is G).

    Worked example, rewards (1, 0, 0, 0): mean 0.25, advantages (3, -1, -1, -1).
    """

    def estimate_PG(self, reward_PG: Tensor) -> Tensor:
        """Return (r - mean) / mean.

        Raises:
            ValueError: if a reward is below 0.
        """
        if bool((reward_PG < 0).any()):
            raise ValueError(
                f"advantage: MeanNormalized needs rewards of 0 or above, and one is"
                f" {float(reward_PG.min()):.4g}; use GroupNormalized, or remove penalties"
            )
        mean_P1 = reward_PG.mean(1, keepdim=True)
        return (reward_PG - mean_P1) / mean_P1
