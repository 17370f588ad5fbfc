"""Advantages of each reward function apart (GDPO), summed.

P prompts   G responses per prompt   B = P*G rows   T response tokens
"""

from __future__ import annotations

import torch
from torch import Tensor

from r1lit.batches import Rollout
from r1lit.groups import counting_groups
from r1lit.objectives.advantages import AdvantageEstimator, GroupNormalized
from r1lit.ranks import of_all_ranks


class NormalizedPerReward(AdvantageEstimator):
    """GDPO's advantages (2601.05242): each reward function is normalised separately.

    A_i = (S_i - mean(S)) / (std(S) + std_epsilon) over the iteration's responses, of all ranks,
    S_i = sum over functions k of weight_k (r_ik - mean(r_k)) / (std(r_k) + std_epsilon) within the
    response's group.

    Normalised after the sum, rewards (1, 0) and (0, 1) become one; apart, the rarer one of the two
    counts more. A function's own ``weight`` is not read, since the division would take it away.

    Left open, and chosen here: population stds, as in ``GroupNormalized``; a function whose rewards
    are all equal in a group adds 0 there; groups that are left out of the loss do not count.

    Worked example, one group of 2, accuracy (1, 0) and format (1, 0), weights 1: S = (2, -2),
    A = (1, -1). With format (0, 1): S = (0, 0), A = (0, 0).

    Args:
        weights: weight of each reward function by its logged name; 1 where left out.
        std_epsilon: added to the stds.
    """

    min_group_size = 2
    reads = ("reward_PG",)

    def __init__(self, weights: dict[str, float] | None = None, std_epsilon: float = 1e-6) -> None:
        self.weights = weights or {}
        self.one = GroupNormalized(std_epsilon)
        self.std_epsilon = std_epsilon

    def estimate(self, rollout: Rollout) -> Tensor:
        """Return each response's advantage at every one of its tokens."""
        if rollout.reward_BT is not None:
            raise ValueError(
                "advantage: NormalizedPerReward reads only rewards of responses, and here tokens"
                " have rewards; leave r1lit.steps.KLInReward out (objective.beta puts the KL into"
                " the loss), or use GroupNormalized if steps or turns have rewards"
            )
        unknown = sorted(set(self.weights) - set(rollout.rewards))
        if unknown:
            raise ValueError(
                f"advantage: weights has {', '.join(unknown)}, and the rewards are"
                f" {', '.join(rollout.rewards)}"
            )
        sum_PG = torch.zeros_like(rollout.reward_PG)
        for name, reward_PG in rollout.rewards.items():
            sum_PG = sum_PG + self.weights.get(name, 1.0) * self.one(reward_PG)
        counts_P = counting_groups(rollout)
        sum_N = torch.cat(of_all_ranks(sum_PG[counts_P].flatten().cpu())).to(sum_PG)
        centred_PG = sum_PG - sum_N.mean()
        spread = sum_N.std(correction=0) if len(sum_N) else 0.0
        advantage_PG = centred_PG / (spread + self.std_epsilon) if spread > 0 else sum_PG * 0
        return torch.where(rollout.sampled_BT, advantage_PG.reshape(-1, 1), 0.0)
