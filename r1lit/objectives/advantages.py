"""Advantages from rewards: by groups, token by token with a critic, from rewards of steps.

    P prompts   G responses per prompt   B = P*G rows   T response tokens   |o| tokens of a response

Groups. The baseline of a group estimator is what the response's own group earned. All of them agree
on two things that the papers leave open: a group of equal rewards teaches nothing, so its
advantages are exactly 0 (not the rounding error of r - mean(r), which a division by a tiny std
would blow up to order one); and the mean is over the G responses of one prompt, never over the
whole rollout.

Generalised advantage estimation (GAE) gives credit token by token from a critic's values:

    delta_t = r_t + gamma V_{t+1} - V_t        A_t = sum over l of (gamma lambda)^l delta_{t+l}

(1506.02438, Eq. 12 and 16.) V_t is the value before token t; after the last token it is 0, also
where a response was cut at the limit. The critic learns the returns A_t + V_t.

Steps: ``rollout.reward_BT`` has the rewards of steps, at their last tokens, or of all tokens.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from r1lit.batches import Rollout, of_all_ranks
from r1lit.device import cumulative_sum
from r1lit.errors import check_above, check_at_least, check_between, check_one_of
from r1lit.objectives.terms import hide_padding, k1_BT, row_sum_B1


class AdvantageEstimator(ABC):
    """Turns a rollout's rewards into ``advantage_BT``, one number a response token.

    Subclass this for credit per token or per step; subclass ``GroupEstimator`` where an advantage
    is one number a response.
    """

    min_group_size: int = 1

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


class RewardsApart(AdvantageEstimator):
    """Each reward function normalised apart, of GDPO (2601.05242): accuracy and format, say.

    A_i = (S_i - mean(S)) / (std(S) + std_epsilon) over the iteration's responses, of all ranks,
    S_i = sum over functions k of weight_k (r_ik - mean(r_k)) / (std(r_k) + std_epsilon) within the
    response's group.

    Normalised after the sum, rewards (1, 0) and (0, 1) become one; apart, the rarer one of the two
    counts more. A function's own ``weight`` is not read, since the division would take it away.

    Left open, and chosen here: population stds, as in ``GroupNormalized``; a function whose rewards
    are all equal in a group adds 0 there.

    Worked example, one group of 2, accuracy (1, 0) and format (1, 0), weights 1: S = (2, -2),
    A = (1, -1). With format (0, 1): S = (0, 0), A = (0, 0).

    Args:
        weights: weight of each reward function by its logged name; 1 where left out.
        std_epsilon: added to the stds.
    """

    min_group_size = 2

    def __init__(self, weights: dict[str, float] | None = None, std_epsilon: float = 1e-6) -> None:
        self.weights = weights or {}
        self.one = GroupNormalized(std_epsilon)
        self.std_epsilon = std_epsilon

    def estimate(self, rollout: Rollout) -> Tensor:
        """Return each response's advantage at every one of its tokens."""
        if rollout.reward_BT is not None:
            raise ValueError(
                "advantage: RewardsApart reads only rewards of responses, and here tokens have"
                " rewards; set kl_in_reward to 0 (objective.beta puts the KL into the loss), or use"
                " GroupNormalized if steps or turns have rewards"
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
        sum_N = torch.cat(of_all_ranks(sum_PG.flatten().cpu())).to(sum_PG)
        centred_PG = sum_PG - sum_N.mean()
        spread = sum_N.std(correction=0)
        advantage_PG = centred_PG / (spread + self.std_epsilon) if spread > 0 else sum_PG * 0
        return torch.where(rollout.sampled_BT, advantage_PG.reshape(-1, 1), 0.0)


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
            token_BT = hide_padding(rollout.reward_BT, rollout.sampled_BT)
            return_BT = return_BT + sum_to_end_BT(token_BT)
        return torch.where(rollout.sampled_BT, return_BT, 0.0)


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
        check_one_of("keep", keep, ("right", "best"))
        self.keep = keep

    def estimate(self, rollout: Rollout) -> Tensor:
        """Return 1 at every token of the kept responses."""
        kept_B = rollout.is_right_B
        if self.keep == "best":
            best_P1 = rollout.reward_PG.argmax(-1, keepdim=True)
            kept_B = torch.zeros_like(rollout.reward_PG).scatter(-1, best_P1, 1.0).flatten() > 0
        return (rollout.sampled_BT & kept_B[:, None]).to(rollout.advantage_BT.dtype)


def with_kl_in_reward(
    rollout: Rollout, logp_ref_BT: Tensor, beta: float
) -> tuple[Rollout, dict[str, float]]:
    """Return the rollout with -beta (log pi_old - log pi_ref) in the reward of each token.

    The KL of InstructGPT's reward (2203.02155, Eq. 2), of RLOO and of REINFORCE++, by k1. Also
    returned are means to log: of the penalty over the tokens that count, NaN where none does, and
    of the KL over responses.
    """
    penalty_BT = hide_padding(beta * k1_BT(rollout.logp_old_BT, logp_ref_BT), rollout.sampled_BT)
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


def sum_to_end_BT(value_BT: Tensor) -> Tensor:
    """Return at each token the sum of the values from it to the end of its row.

    >>> sum_to_end_BT(torch.tensor([[1.0, 2.0, 4.0]])).tolist()
    [[7.0, 6.0, 4.0]]
    """
    return cumulative_sum(value_BT.flip(-1)).flip(-1)


# with a critic


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
    """Advantages and returns from ``rollout.value_BT``, each with a lambda of its own.

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
        assert rollout.value_BT is not None
        return self._gae(rollout, self.lambda_critic) + hide_padding(
            rollout.value_BT, rollout.sampled_BT
        )

    def lambda_of(self, length_B: Tensor) -> Tensor | float:
        """Return the policy's lambda: one number, or one a response.

        >>> GAE(alpha=0.05).lambda_of(torch.tensor([10, 40, 1000]))
        tensor([0.0000, 0.5000, 0.9800])
        """
        if self.alpha is None:
            return self.lambda_policy
        return (1 - 1 / (self.alpha * length_B.clamp(min=1))).clamp(min=0)

    def _gae(self, rollout: Rollout, lambda_B: Tensor | float) -> Tensor:
        if rollout.value_BT is None:
            raise ValueError(
                "advantage: GAE needs a critic's values; take r1lit.modules.PPOModule, or an"
                " estimator of groups such as r1lit.objectives.GroupNormalized"
            )
        reward_BT = token_rewards_BT(rollout)
        return gae_BT(
            reward_BT, rollout.value_BT, rollout.sampled_BT, gamma=self.gamma, lambda_B=lambda_B
        )


# from rewards of steps or tokens


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
                " have some; set kl_in_reward to 0, objective.beta puts the KL into the loss"
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

    def __init__(self, gamma: float = 1.0) -> None:
        check_between("gamma", gamma, 0, 1)
        self.gamma = gamma

    def estimate(self, rollout: Rollout) -> Tensor:
        """Return the sum of both parts."""
        if rollout.reward_BT is None:
            raise ValueError(
                "advantage: ImplicitProcess needs a reward of every token; take"
                " r1lit.modules.PRIMEModule"
            )
        mask_BT = rollout.sampled_BT
        reward_BT = hide_padding(rollout.reward_BT, mask_BT)
        mean_PG = (reward_BT.sum(-1) / rollout.num_sampled_B.clamp(min=1)).reshape_as(
            rollout.reward_PG
        )
        others_PG = mean_PG.sum(1, keepdim=True) - mean_PG
        baseline_B1 = (others_PG / (rollout.group_size - 1)).reshape(-1, 1)
        centred_BT = hide_padding(reward_BT - baseline_B1, mask_BT)
        none_BT = torch.zeros_like(centred_BT)
        later_BT = gae_BT(centred_BT, none_BT, mask_BT, gamma=self.gamma, lambda_B=1.0)
        return later_BT + LeaveOneOut().estimate(replace(rollout, reward_BT=None))
