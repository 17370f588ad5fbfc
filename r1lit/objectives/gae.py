"""Generalised advantage estimation (GAE): credit token by token from a critic's values.

    delta_t = r_t + gamma V_{t+1} - V_t        A_t = sum over l of (gamma lambda)^l delta_{t+l}

(1506.02438, Eq. 12 and 16.) V_t is the value before token t; after the last token it is 0, also
where a response was cut at the limit. The critic learns the returns A_t + V_t.

B rows (responses)   T response tokens
"""

from __future__ import annotations

import torch
from torch import Tensor

from r1lit.batches import Rollout
from r1lit.errors import check_above, check_between
from r1lit.objectives.advantages import AdvantageEstimator
from r1lit.objectives.terms import hide_padding


def token_rewards_BT(rollout: Rollout) -> Tensor:
    """Return r_t: the reward at the last sampled token, plus ``rollout.reward_BT`` if there is."""
    place_T = torch.arange(rollout.response_BT.shape[1], device=rollout.length_B.device)
    last_B1 = torch.where(rollout.sampled_BT, place_T, -1).amax(-1, keepdim=True)
    reward_BT = torch.where(place_T == last_B1, rollout.reward_PG.reshape(-1, 1), 0.0)
    if rollout.reward_BT is None:
        return reward_BT
    return reward_BT + hide_padding(rollout.reward_BT, rollout.sampled_BT)


def gae_BT(
    reward_BT: Tensor, value_BT: Tensor, mask_BT: Tensor, *, gamma: float, lambda_B: Tensor | float
) -> Tensor:
    """Return A_t, 0 where the mask is false; V_{t+1} is the value at the next masked-in token.

    Worked example, one response of two tokens, rewards (0, 1), values (0.5, 0.6), gamma 1: deltas
    (0.1, 0.4); lambda 0.5 gives (0.3, 0.4), and lambda 1 the return less the value, (0.5, 0.4).

    Args:
        reward_BT: r_t.
        value_BT: V_t.
        mask_BT: the sampled tokens; what stands at others is not read.
        gamma: discount a token.
        lambda_B: one number, or one a response.
    """
    reward_BT, value_BT = hide_padding(reward_BT, mask_BT), hide_padding(value_BT, mask_BT)
    advantage_BT, later_B = torch.zeros_like(value_BT), torch.zeros_like(value_BT[:, 0])
    next_B = torch.zeros_like(later_B)
    for t in reversed(range(value_BT.shape[1])):
        delta_B = reward_BT[:, t] + gamma * next_B - value_BT[:, t]
        advantage_BT[:, t] = delta_B + gamma * lambda_B * later_B
        later_B = torch.where(mask_BT[:, t], advantage_BT[:, t], later_B)
        next_B = torch.where(mask_BT[:, t], value_BT[:, t], next_B)
    return hide_padding(advantage_BT, mask_BT)


def monte_carlo_returns_BT(rollout: Rollout, gamma: float) -> Tensor:
    """Return the discounted rewards from each token to the end of its response."""
    reward_BT = token_rewards_BT(rollout)
    none_BT = torch.zeros_like(reward_BT)
    return gae_BT(reward_BT, none_BT, rollout.sampled_BT, gamma=gamma, lambda_B=1.0)


class GAE(AdvantageEstimator):
    """Advantages and returns from a critic's ``value_BT``, each with a lambda of its own.

    The decoupled GAE of VC-PPO (2503.01491, §3.3): lambda 1 leaves the critic's targets unbiased
    by its own errors, and the policy may take a smaller one for less variance. The classic PPO has
    one lambda for both, 0.95. With ``alpha`` the policy's follows the length (VAPO, 2504.05118,
    §4.2): 1 - 1 / (alpha |o|), at least 0; theirs is 0.05, for responses of thousands of tokens.

    With both lambdas at 1, gamma 1 and a critic of 0 an advantage is the reward of the response.

    Args:
        gamma: discount a token.
        lambda_policy: of the advantages.
        lambda_critic: of the returns that the critic learns.
        alpha: makes the policy's lambda one of each response's length, in place of
            ``lambda_policy``.
    """

    reads = ("reward_PG", "reward_BT", "value_BT")

    def __init__(
        self,
        gamma: float = 1.0,
        lambda_policy: float = 0.95,
        lambda_critic: float = 1.0,
        alpha: float | None = None,
    ) -> None:
        numbers = {"gamma": gamma, "lambda_policy": lambda_policy, "lambda_critic": lambda_critic}
        for key, value in numbers.items():
            check_between(key, value, 0, 1)
        check_above("alpha", alpha, 0, "VAPO uses 0.05, null adapts nothing", finite=False)
        self.gamma = gamma
        self.lambda_policy = lambda_policy
        self.lambda_critic = lambda_critic
        self.alpha = alpha

    def estimate(self, rollout: Rollout) -> Tensor:
        """Return the policy's advantages."""
        return self._gae(rollout, self.lambda_of(rollout.num_sampled_B))

    def returns(self, rollout: Rollout) -> Tensor:
        """Return ``return_BT``, the critic's targets."""
        value_BT = rollout.extra("value_BT", "GAE")
        return self._gae(rollout, self.lambda_critic) + hide_padding(value_BT, rollout.sampled_BT)

    def lambda_of(self, length_B: Tensor) -> Tensor | float:
        """Return the policy's lambda: one number, or one a response.

        >>> GAE(alpha=0.05).lambda_of(torch.tensor([10, 40, 1000]))
        tensor([0.0000, 0.5000, 0.9800])
        """
        if self.alpha is None:
            return self.lambda_policy
        return (1 - 1 / (self.alpha * length_B.clamp(min=1))).clamp(min=0)

    def _gae(self, rollout: Rollout, lambda_B: Tensor | float) -> Tensor:
        value_BT, reward_BT = rollout.extra("value_BT", "GAE"), token_rewards_BT(rollout)
        return gae_BT(reward_BT, value_BT, rollout.sampled_BT, gamma=self.gamma, lambda_B=lambda_B)
