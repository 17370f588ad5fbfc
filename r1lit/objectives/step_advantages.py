"""Advantages from rewards of steps and tokens: ``rollout.reward_BT``.

It has the rewards of steps, at their last tokens, or of all tokens.

P prompts   G responses per prompt   B = P*G rows   T response tokens
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from r1lit.batches import Rollout
from r1lit.device import cumulative_sum
from r1lit.errors import check_at_least, check_between
from r1lit.objectives.advantages import AdvantageEstimator, GroupEstimator, LeaveOneOut
from r1lit.objectives.gae import gae_BT
from r1lit.objectives.terms import hide_padding


def sum_to_end_BT(value_BT: Tensor) -> Tensor:
    """Return at each token the sum of the values from it to the end of its row.

    >>> sum_to_end_BT(torch.tensor([[1.0, 2.0, 4.0]])).tolist()
    [[7.0, 6.0, 4.0]]
    """
    return cumulative_sum(value_BT.flip(-1)).flip(-1)


class ProcessSupervision(AdvantageEstimator):
    """GRPO with process supervision (DeepSeekMath 2402.03300, §4.1.3).

    All rewards of steps in a group are normalised together, (r - mean) / (std + std_epsilon), and a
    token's advantage is the sum of those of the steps that end at it or later. The std is the
    population's, as in ``GroupNormalized``. A group of equal rewards has advantages of 0.

    A step above the group's mean adds to every token before it, so that a response of many good
    steps earns more than one of few.

    Worked example, two responses of steps (1, 0) and (1): mean 2/3, std 0.4714, normalised
    (0.7071, -1.4142) and (0.7071); the first one's tokens get -0.7071 in its first step and -1.4142
    in its second, the other one's 0.7071.

    Args:
        outcome: adds the advantages that it makes of the responses' rewards; the paper adds none.
        std_epsilon: added to the std.
    """

    min_group_size = 2

    def __init__(self, outcome: GroupEstimator | None = None, std_epsilon: float = 1e-6) -> None:
        check_at_least("std_epsilon", std_epsilon, 0, "1e-6 is usual")
        self.outcome = outcome
        self.std_epsilon = std_epsilon

    def estimate(self, rollout: Rollout) -> Tensor:
        """Return the sum of the normalised rewards of later steps."""
        if rollout.reward_BT is None or rollout.step_end_BT is None:
            raise ValueError(
                "advantage: ProcessSupervision needs rewards of steps; give rewards a"
                " r1lit.rewards.ProcessReward with per_step: true"
            )
        if hide_padding(rollout.reward_BT, rollout.sampled_BT & ~rollout.step_end_BT).any():
            raise ValueError(
                "advantage: ProcessSupervision reads rewards of steps alone, and other tokens have"
                " some; leave r1lit.steps.KLInReward out, objective.beta puts the KL into the loss"
            )
        end_PN = rollout.step_end_BT.reshape(rollout.num_prompts, -1)
        reward_PN = hide_padding(rollout.reward_BT.reshape(rollout.num_prompts, -1), end_PN)
        num_P1 = end_PN.sum(1, keepdim=True).clamp(min=1)
        centred_PN = hide_padding(reward_PN - reward_PN.sum(1, keepdim=True) / num_P1, end_PN)
        std_P1 = (centred_PN.square().sum(1, keepdim=True) / num_P1).sqrt()
        largest_P1 = reward_PN.masked_fill(~end_PN, -torch.inf).amax(1, keepdim=True)
        smallest_P1 = reward_PN.masked_fill(~end_PN, torch.inf).amin(1, keepdim=True)
        normal_PN = torch.where(
            smallest_P1 < largest_P1, centred_PN / (std_P1 + self.std_epsilon), 0.0
        )
        normal_BT = normal_PN.reshape(rollout.reward_BT.shape)
        advantage_BT = hide_padding(sum_to_end_BT(normal_BT), rollout.sampled_BT)
        outcomes = replace(rollout, reward_BT=None)
        return advantage_BT + (self.outcome.estimate(outcomes) if self.outcome else 0.0)


class TurnReturns(AdvantageEstimator):
    """Credit by turns: A of turn k = R_k less the mean R_k of the *other* responses of the group.

    R_k is all that a response is paid from its turn k on, its outcome reward in it; it is 0 for a
    response that had ended by then. The baseline holds no action of the response itself, so the
    policy gradient is unbiased. Normalising the k-th turns among those responses that have one is
    not: whether a response has one is its own action, so such a baseline pays for stopping.

    Worked example, two responses of rewards of turns (1, 0) and (0), outcomes 1 and 0: R of the
    first one is (2, 1), of the other one (0), so the advantages are (2, 1) and (-2).
    """

    min_group_size = 2

    def estimate(self, rollout: Rollout) -> Tensor:
        """Return the advantage of a token's turn.

        Raises:
            ValueError: if there are no turns, or tokens within a turn have rewards.
        """
        if rollout.step_end_BT is None or rollout.environment_BT is None:
            raise ValueError(
                "advantage: TurnReturns needs episodes of several turns; give"
                " data.environments, or take r1lit.objectives.GroupCentered"
            )
        sampled_BT = rollout.sampled_BT
        reward_BT = torch.zeros_like(rollout.advantage_BT)
        if rollout.reward_BT is not None:
            reward_BT = hide_padding(rollout.reward_BT, sampled_BT)
        if hide_padding(reward_BT, ~rollout.step_end_BT).any():
            raise ValueError(
                "advantage: TurnReturns reads rewards at the ends of turns alone, and other tokens"
                " have some; leave r1lit.steps.KLInReward out, objective.beta puts the KL into the"
                " loss"
            )
        return_BT = sum_to_end_BT(reward_BT) + rollout.reward_PG.reshape(-1, 1)
        end_BT = rollout.step_end_BT & sampled_BT
        turn_BT = end_BT.cumsum(-1) - end_BT.long()
        num_turns = int(torch.where(sampled_BT, turn_BT, 0).max()) + 1
        place_BT = torch.where(sampled_BT, turn_BT, num_turns)
        # rewards of a turn are at its end, so its tokens have one return: any of them may be kept
        return_BK = return_BT.new_zeros(len(return_BT), num_turns + 1)
        return_BK = return_BK.scatter(1, place_BT, return_BT)
        return_PGK = return_BK.view(rollout.num_prompts, rollout.group_size, -1)
        others_PGK = return_PGK.sum(1, keepdim=True) - return_PGK
        advantage_BK = (return_PGK - others_PGK / (rollout.group_size - 1)).flatten(0, 1)
        return hide_padding(advantage_BK.gather(1, place_BT), sampled_BT)


class ImplicitProcess(AdvantageEstimator):
    """PRIME's advantages (2502.01456, Eq. 5): leave-one-out, of implicit and outcome rewards.

    A_t = sum over s >= t of gamma^(s-t) (r_s - b) + r_o - b_o: the baseline b is the mean over the
    group's other responses of their mean token reward, b_o that of their outcome rewards.

    Worked example, two responses with token rewards (1, 3) and (1) and outcomes 1 and 0. The means
    are 2 and 1: less b = 1 the first one has (0, 2), summed (2, 2), and with 1 - 0 for the outcome
    (3, 3); the other one has 1 - 2 + 0 - 1 = -2.

    Args:
        gamma: discount a token.
    """

    min_group_size = 2
    reads = ("reward_PG", "process_reward_BT")

    def __init__(self, gamma: float = 1.0) -> None:
        check_between("gamma", gamma, 0, 1)
        self.gamma = gamma

    def estimate(self, rollout: Rollout) -> Tensor:
        """Return the sum of both parts."""
        mask_BT = rollout.sampled_BT
        reward_BT = hide_padding(rollout.extra("process_reward_BT", "ImplicitProcess"), mask_BT)
        mean_PG = (reward_BT.sum(-1) / rollout.num_sampled_B.clamp(min=1)).reshape_as(
            rollout.reward_PG
        )
        others_PG = mean_PG.sum(1, keepdim=True) - mean_PG
        baseline_B1 = (others_PG / (rollout.group_size - 1)).reshape(-1, 1)
        centred_BT = hide_padding(reward_BT - baseline_B1, mask_BT)
        none_BT = torch.zeros_like(centred_BT)
        later_BT = gae_BT(centred_BT, none_BT, mask_BT, gamma=self.gamma, lambda_B=1.0)
        return later_BT + LeaveOneOut().estimate(replace(rollout, reward_BT=None))
