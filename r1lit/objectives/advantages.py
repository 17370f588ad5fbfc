"""Advantages from rewards, without a value model (``gae`` has one with it).

    P prompts   G responses per prompt   B = P*G rows   T response tokens

The baseline of a group estimator is what the response's own group earned. All of them agree on two
things that the papers leave open: a group of equal rewards teaches nothing, so its advantages are
exactly 0 (not the rounding error of r - mean(r), which a division by a tiny std would blow up to
order one); and the mean is over the G responses of one prompt, never over the whole rollout.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from r1lit.batches import Rollout
from r1lit.objectives.kl import k1_BT
from r1lit.objectives.masking import hide_padding, row_sum_B1


class AdvantageEstimator(ABC):
    """Turns a rollout's rewards into ``advantage_BT``, one number a response token.

    Subclass this for credit per token or per step; subclass ``GroupEstimator`` where an advantage
    is one number a response.
    """

    min_group_size: int = 1

    @abstractmethod
    def estimate(self, rollout: Rollout) -> Tensor:
        """Return ``advantage_BT``; what stands in the padding is not read.

        ``rollout.advantage_BT`` is 0 yet. Rewards are finite: whoever computes them rejects others.
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
            token_B1 = row_sum_B1(rollout.reward_BT, rollout.mask_BT)
            reward_PG = reward_PG + token_B1.view_as(reward_PG)
        advantage_B1 = self(reward_PG).reshape(-1, 1)
        return torch.where(rollout.mask_BT, advantage_B1, 0.0)

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
        if not std_epsilon >= 0:
            raise ValueError(f"std_epsilon={std_epsilon}: must be 0 or above, 1e-6 say")
        if std not in ("population", "sample"):
            raise ValueError(f"std={std!r}: must be 'population' or 'sample'")
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


class NoBaseline(AdvantageEstimator):
    """A_it = what is still paid from token t on, of REINFORCE (Williams 1992); G may be 1.

    That is r_i, and less the penalties to come where the KL is in the reward. With the module's
    ``whiten_advantages`` and ``kl_in_reward`` it is REINFORCE++ (2501.03262, §3.2), whose baseline
    is the mean of the iteration.

    Worked example, rewards (1, 0, 0, 0): advantages (1, 0, 0, 0). With penalties of (0.1, 0.2) at
    two tokens the first response's are (0.7, 0.8).
    """

    def estimate(self, rollout: Rollout) -> Tensor:
        """Return each response's reward at every one of its tokens, and the tokens' yet to come."""
        return_BT = rollout.reward_PG.reshape(-1, 1)
        if rollout.reward_BT is not None:
            token_BT = hide_padding(rollout.reward_BT, rollout.mask_BT)
            return_BT = return_BT + token_BT.flip(-1).cumsum(-1).flip(-1)
        return torch.where(rollout.mask_BT, return_BT, 0.0)


class Kept(AdvantageEstimator):
    """A_i = 1 for responses that are kept and 0 for others: fine-tuning on one's own best.

    With ``PolicyGradient`` each update is one of supervised fine-tuning on the kept responses of
    its minibatch, a mean over tokens times the share of them that is kept. RAFT (2304.06767, §3)
    keeps the best of each group, expert iteration (STaR, ReST) what is right.

    Worked example, rewards (0, 2, 2, 1), the first two right: "best" keeps (0, 1, 0, 0), the first
    of equals, and "right" (1, 1, 0, 0).

    Args:
        keep: "right" responses, or the "best" of each group, right or wrong.
    """

    def __init__(self, keep: Literal["right", "best"] = "right") -> None:
        if keep not in ("right", "best"):
            raise ValueError(f"keep={keep!r}: must be 'right' or 'best'")
        self.keep = keep

    def estimate(self, rollout: Rollout) -> Tensor:
        """Return 1 at every token of the kept responses."""
        kept_B = rollout.is_right_B
        if self.keep == "best":
            best_P1 = rollout.reward_PG.argmax(-1, keepdim=True)
            kept_B = torch.zeros_like(rollout.reward_PG).scatter(-1, best_P1, 1.0).flatten() > 0
        return (rollout.mask_BT & kept_B[:, None]).to(rollout.advantage_BT.dtype)


def with_kl_in_reward(
    rollout: Rollout, logp_ref_BT: Tensor, beta: float
) -> tuple[Rollout, dict[str, float]]:
    """Return the rollout with -beta (log pi_old - log pi_ref) in the reward of each token.

    The KL of InstructGPT's reward (2203.02155, Eq. 2), of RLOO and of REINFORCE++, by k1. Also
    returned are means to log: of the penalty over the tokens that count, NaN where none does, and
    of the KL over responses.
    """
    penalty_BT = hide_padding(beta * k1_BT(rollout.logp_old_BT, logp_ref_BT), rollout.mask_BT)
    paid_BT = 0.0 if rollout.reward_BT is None else rollout.reward_BT
    return replace(rollout, reward_BT=paid_BT - penalty_BT), {
        "train/kl_in_reward": float(penalty_BT[rollout.loss_mask_BT].mean()),
        "train/kl_per_response": float(penalty_BT.sum(-1).mean()) / beta,
    }


def whitened(rollout: Rollout, mean_over_ranks: Callable[[Tensor], float]) -> Rollout:
    """Return the rollout with advantages of mean 0 and variance 1 over the tokens that count.

    Args:
        rollout: with advantages.
        mean_over_ranks: of a sum; all ranks are whitened together.
    """
    mask_BT = rollout.loss_mask_BT
    num_tokens = max(mean_over_ranks(mask_BT.sum()), 1.0)
    mean = mean_over_ranks(hide_padding(rollout.advantage_BT, mask_BT).sum()) / num_tokens
    centred_BT = hide_padding(rollout.advantage_BT - mean, mask_BT)
    variance = mean_over_ranks(centred_BT.square().sum()) / num_tokens
    return replace(rollout, advantage_BT=centred_BT / (math.sqrt(variance) + 1e-8))
