"""Advantages token by token from rewards of steps or tokens, without a critic.

    P prompts   G responses per prompt   B = P*G rows   T response tokens

``rollout.reward_BT`` holds the rewards of steps, at their last tokens, or of all tokens.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from r1lit.batches import Rollout
from r1lit.objectives.advantages import AdvantageEstimator, GroupEstimator, LeaveOneOut
from r1lit.objectives.gae import gae_BT
from r1lit.objectives.masking import hide_padding


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
        if not std_epsilon >= 0:
            raise ValueError(f"std_epsilon={std_epsilon}: must be 0 or above, 1e-6 say")
        self.outcome = outcome
        self.std_epsilon = std_epsilon

    def estimate(self, rollout: Rollout) -> Tensor:
        """Return the sum of the normalised rewards of later steps."""
        if rollout.reward_BT is None or rollout.step_end_BT is None:
            raise ValueError(
                "advantage: ProcessSupervision needs rewards of steps; give rewards a"
                " r1lit.rewards.ProcessReward with per_step: true"
            )
        if hide_padding(rollout.reward_BT, rollout.mask_BT & ~rollout.step_end_BT).any():
            raise ValueError(
                "advantage: ProcessSupervision reads rewards of steps alone, and other tokens have"
                " some; set kl_in_reward to 0, objective.beta puts the KL into the loss"
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
        advantage_BT = hide_padding(normal_BT.flip(-1).cumsum(-1).flip(-1), rollout.mask_BT)
        outcomes = replace(rollout, reward_BT=None)
        return advantage_BT + (self.outcome.estimate(outcomes) if self.outcome else 0.0)


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

    def __init__(self, gamma: float = 1.0) -> None:
        if not 0 <= gamma <= 1:
            raise ValueError(f"gamma={gamma}: must be between 0 and 1")
        self.gamma = gamma

    def estimate(self, rollout: Rollout) -> Tensor:
        """Return the sum of both parts."""
        if rollout.reward_BT is None:
            raise ValueError(
                "advantage: ImplicitProcess needs a reward of every token; take"
                " r1lit.modules.PRIMEModule"
            )
        mask_BT = rollout.mask_BT
        reward_BT = hide_padding(rollout.reward_BT, mask_BT)
        mean_PG = (reward_BT.sum(-1) / rollout.length_B.clamp(min=1)).reshape_as(rollout.reward_PG)
        others_PG = mean_PG.sum(1, keepdim=True) - mean_PG
        baseline_B1 = (others_PG / (rollout.group_size - 1)).reshape(-1, 1)
        centred_BT = hide_padding(reward_BT - baseline_B1, mask_BT)
        none_BT = torch.zeros_like(centred_BT)
        later_BT = gae_BT(centred_BT, none_BT, mask_BT, gamma=self.gamma, lambda_B=1.0)
        return later_BT + LeaveOneOut().estimate(replace(rollout, reward_BT=None))
