"""The policy-gradient family: an objective a class, each with its paper's equation.

B rows (responses)   T response tokens

GRPO           the ratio per token, the mean over a response, then over rows
GRPOSequence   one ratio per whole output, as DeepSeek-R1 prints it
DrGRPO         without GRPO's two biases, of length and of difficulty
DAPO           the clip higher above than below, every token of the minibatch counted alike
GSPO           the ratio of a response is the geometric mean of its token ratios
GSPOToken      the same with an advantage a token
GMPO           the geometric mean of token ratios that were clipped one by one
SAPO           a soft gate in place of the clip
DPPO           a limit on the divergence of the policies in place of one on the ratio
CISPO          the importance weight clipped, every token's gradient kept
PPO            a critic's advantages, which ``ValueObjective`` trains
PolicyGradient no ratio, no clip
RLOO           REINFORCE on whole responses, with the mean of the others as its baseline
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from r1lit.errors import check_above, check_at_least, check_one_of
from r1lit.objectives.advantages import GAE, AdvantageEstimator, GroupCentered, LeaveOneOut
from r1lit.objectives.objective import (
    ClippedObjective,
    LossInputs,
    LossOutputs,
    Objective,
    SymmetricClip,
    check_clip,
)
from r1lit.objectives.terms import (
    LARGEST_LOG_RHO,
    hide_padding,
    mean_and_token_log_ratio_BT,
    mean_log_ratio_BT,
    output_log_ratio_BT,
    per_budget_BT,
    per_response_BT,
    per_token_BT,
    row_length_B1,
    row_sum_B1,
    token_log_ratio_BT,
)

MOST = 1 - 1e-6
"""The largest probability of a token in a binary divergence: the others keep some."""


class GRPO(SymmetricClip):
    """Group Relative Policy Optimization (DeepSeekMath 2402.03300, Eq. 3).

    J = 1/G sum_i 1/|o_i| sum_t [ min(rho_it A_i, clip(rho_it, 1 - eps, 1 + eps) A_i) - beta D_KL ],
    rho_it = pi_theta(o_it) / pi_old(o_it), A_i group-normalised, D_KL the k3 estimator (Eq. 4).

    Left open, and chosen here: the mean over questions and over the G responses is one mean over
    the rows of a minibatch (the same where every group is whole or rows are shuffled); eps, which
    the paper does not print, is PPO's 0.2. DeepSeekMath trains with beta = 0.04, R1 with 0.001 and
    eps = 10; beta is 0 here by default, without a reference. R1 prints the ratio per whole output
    instead: that is ``GRPOSequence``.

    Degenerates: on policy (rho = 1, beta = 0) to REINFORCE with 1/|o_i|. With equal lengths it is
    ``DAPO`` of equal epsilons, and ``DrGRPO`` whose max_tokens is that length.

    Args:
        epsilon: the ratio is clipped to [1 - epsilon, 1 + epsilon]; may exceed 1.
        **options: of ``Objective``: beta, kl, advantage (GroupNormalized where left out).
    """

    log_ratio_BT = staticmethod(token_log_ratio_BT)
    aggregation_BT = staticmethod(per_response_BT)


class GRPOSequence(SymmetricClip):
    """GRPO with one ratio per whole output (DeepSeek-R1 2501.12948v1, Eq. 1; Nature 645:633).

    J = 1/G sum_i [ min(rho_i A_i, clip(rho_i, 1 - eps, 1 + eps) A_i) - beta D_KL ],
    rho_i = pi_theta(o_i|q) / pi_old(o_i|q), the product of the token ratios.

    Left open, and chosen here: D_KL is printed for the output. Read as one sample of k3 for the
    whole output it would hold exp of a sum over thousands of tokens, and overflow; summed over
    tokens its weight would grow with the length. It is *averaged over the tokens* of the output, as
    in DeepSeekMath's Eq. 3, so that one beta means the same in both classes. (Multiply beta by the
    typical length for the sum.) epsilon is R1's 10: a product of ratios strays much further from 1
    than a token's ratio, and 0.2 would clip nearly every long output after one update.

    The product may overflow its float where A < 0 (where A > 0 the clip caps it at 1 + eps): the
    loss is then infinite, as in the equation, and not hidden.

    Degenerates: on policy (rho = 1) the gradient is A_i sum_t grad log pi, *without* 1/|o_i|: with
    the same advantages max_tokens times that of ``DrGRPO``, and so R1's print, read literally, does
    not have GRPO's length bias. With one-token responses it is ``GRPO`` and ``GSPO``.

    Args:
        epsilon: the ratio is clipped to [1 - epsilon, 1 + epsilon]; may exceed 1.
        **options: of ``Objective``: beta, kl, advantage (GroupNormalized where left out).
    """

    log_ratio_BT = staticmethod(output_log_ratio_BT)
    aggregation_BT = staticmethod(per_response_BT)  # over a response they sum it up once
    one_per_response = True

    def __init__(self, *, epsilon: float = 10.0, **options: Any) -> None:
        super().__init__(epsilon=epsilon, **options)


class DrGRPO(SymmetricClip):
    """GRPO done right (Liu et al. 2503.20783, §3.2): no 1/|o_i| and no division by the std.

    J = 1/G sum_i sum_t min(rho_it A_i, clip(rho_it, 1 - eps, 1 + eps) A_i), A_i = r_i - mean(r).

    1/|o_i| makes a long wrong response cheaper per token than a short one; without it the gradient
    on policy is that of the expected return. The equation sums over tokens; the paper's code
    divides by a constant, the generation budget, and so does this class: the bias is gone as long
    as the constant does not depend on the responses. max_tokens has no default, since it scales the
    gradient; set it to the rollout's limit on response tokens.

    Left open, and chosen here: the paper drops the KL term (beta = 0); a beta above 0 is normalised
    by the budget too, like the surrogate.

    Degenerates: with ``GroupNormalized`` and all responses exactly max_tokens long it is ``GRPO``.

    Args:
        max_tokens: the constant that divides the sum over tokens of a response.
        epsilon: the ratio is clipped to [1 - epsilon, 1 + epsilon]; may exceed 1.
        **options: of ``Objective``: beta, kl, advantage (GroupCentered where left out).
    """

    log_ratio_BT = staticmethod(token_log_ratio_BT)

    def __init__(
        self,
        *,
        max_tokens: int,
        epsilon: float = 0.2,
        advantage: AdvantageEstimator | None = None,
        **options: Any,
    ) -> None:
        check_at_least("max_tokens", max_tokens, 1, "the limit of a response is usual")
        advantage = GroupCentered() if advantage is None else advantage
        super().__init__(epsilon=epsilon, advantage=advantage, **options)
        self.max_tokens = max_tokens

    def aggregation_BT(
        self, mask_BT: Tensor, *, num_rows: float, num_tokens: float, dtype: torch.dtype
    ) -> Tensor:
        """Return 1 / (num_rows * max_tokens)."""
        return per_budget_BT(mask_BT, num_rows=num_rows, max_tokens=self.max_tokens, dtype=dtype)


class DAPO(ClippedObjective):
    """Decoupled Clip and Dynamic sAmpling Policy Optimization (2503.14476, Eq. 8, 10, 12).

    J = 1/(sum_i |o_i|) sum_i sum_t min(rho_it A_i, clip(rho_it, 1 - eps_low, 1 + eps_high) A_i),
    A_i group-normalised, no KL term.

    Two of the paper's four parts live here: clip-higher (Eq. 10; 0.2 and 0.28 in §4.1) and the
    token-level loss (Eq. 12). Dynamic sampling (Eq. 11) belongs to ``r1lit.modules.GRPOModule``,
    which collects the rollout; overlong shaping (Eq. 13) is the reward ``r1lit.rewards.Overlong``.

    Left open, and chosen here: the equation normalises by the tokens of one group inside an
    expectation over questions, the authors' code by the tokens of the whole minibatch. This class
    does the latter, "every token alike": with groups of unequal total length the two differ.

    Degenerates: with equal epsilons and equal lengths it is ``GRPO``.

    Args:
        epsilon_low: the ratio is clipped from below at 1 - epsilon_low.
        epsilon_high: the ratio is clipped from above at 1 + epsilon_high.
        **options: of ``Objective``: beta, kl, advantage (GroupNormalized where left out).
    """

    log_ratio_BT = staticmethod(token_log_ratio_BT)
    aggregation_BT = staticmethod(per_token_BT)

    def __init__(
        self, *, epsilon_low: float = 0.2, epsilon_high: float = 0.28, **options: Any
    ) -> None:
        super().__init__(epsilon_low=epsilon_low, epsilon_high=epsilon_high, **options)


class GSPO(ClippedObjective):
    """Group Sequence Policy Optimization (Zheng et al. 2507.18071, Eq. 5 and 7).

    J = 1/G sum_i min(s_i A_i, clip(s_i, 1 - eps_low, 1 + eps_high) A_i),
    s_i = (pi_theta(o_i|q) / pi_old(o_i|q))^(1/|o_i|), A_i group-normalised.

    A response is clipped whole or not at all, as it is rewarded. The mean of logs moves far less
    than a token's, hence clips a thousand times tighter than GRPO's (3e-4 and 4e-4 in §5.1).

    Left open, and chosen here: the paper omits the KL term for brevity; a beta above 0 averages it
    over the tokens of the response, as in GRPO. This is the paper's GSPO, whose gradient reaches
    every token of a response alike; ``GSPOToken`` is the same where A is one number a response.

    Degenerates: on policy (s = 1) the gradient is ``GRPO``'s, 1/|o_i| included. With one-token
    responses it is ``GRPO`` of the same epsilons and ``GRPOSequence``.

    Args:
        epsilon_low: the ratio is clipped from below at 1 - epsilon_low.
        epsilon_high: the ratio is clipped from above at 1 + epsilon_high.
        **options: of ``Objective``: beta, kl, advantage (GroupNormalized where left out).
    """

    log_ratio_BT = staticmethod(mean_log_ratio_BT)
    aggregation_BT = staticmethod(per_response_BT)  # over a response they sum it up once
    one_per_response = True

    def __init__(
        self, *, epsilon_low: float = 3e-4, epsilon_high: float = 4e-4, **options: Any
    ) -> None:
        super().__init__(epsilon_low=epsilon_low, epsilon_high=epsilon_high, **options)


class GSPOToken(GSPO):
    """GSPO-token (Zheng et al. 2507.18071, Eq. 13 and 14), for an advantage of each token.

    J = 1/G sum_i 1/|o_i| sum_t min(s_it A_it, clip(s_it, 1 - eps_low, 1 + eps_high) A_it),
    s_it = sg(s_i) pi_theta(o_it) / sg(pi_theta(o_it)).

    The value of s_it is the response's s_i, so a response is clipped whole where its advantages are
    of one sign; its gradient is the token's own. Degenerates: with one advantage a response it is
    ``GSPO``, value and gradient.

    Args:
        epsilon_low: the ratio is clipped from below at 1 - epsilon_low.
        epsilon_high: the ratio is clipped from above at 1 + epsilon_high.
        **options: of ``Objective``: beta, kl, advantage (GroupNormalized where left out).
    """

    log_ratio_BT = staticmethod(mean_and_token_log_ratio_BT)
    one_per_response = False


class GMPO(Objective):
    """Geometric-Mean Policy Optimization (Zhao et al. 2507.20673).

    J = 1/G sum_i A_i (prod_t rho_it^c)^(1/|o_i|), rho^c = min(rho, e^eps_high) where A > 0 and
    max(rho, e^-eps_low) where A < 0.

    Each token is clipped before the mean, so that one outlier does not decide about its response,
    and the range can be wide: e^-0.4 to e^0.4 (§4). The bounds are of log rho.

    Left open, and chosen here: the KL term, which the paper leaves out, averages over the tokens of
    a response as in ``GRPO``; with advantages of tokens each is clipped by its own sign.
    Degenerates: where nothing is clipped it is ``GSPO`` without a clip.

    Args:
        epsilon_low: log rho is clipped from below at -epsilon_low.
        epsilon_high: log rho is clipped from above at epsilon_high.
        **options: of ``Objective``: beta, kl, advantage (GroupNormalized where left out).
    """

    log_ratio_BT = staticmethod(token_log_ratio_BT)
    aggregation_BT = staticmethod(per_response_BT)  # over a response they sum it up once
    one_per_response = True

    def __init__(
        self, *, epsilon_low: float = 0.4, epsilon_high: float = 0.4, **options: Any
    ) -> None:
        super().__init__(**options)
        check_clip("epsilon_low", epsilon_low)
        check_clip("epsilon_high", epsilon_high)
        self.epsilon_low = epsilon_low
        self.epsilon_high = epsilon_high

    def surrogate_BT(self, inputs: LossInputs) -> Tensor:
        """Return the geometric mean of a response's clipped ratios times A, at each token."""
        log_ratio_BT, advantage_BT = self.log_ratio_and_advantage(inputs)
        lowest_BT = torch.full_like(log_ratio_BT, -self.epsilon_low)
        bound_BT = torch.where(advantage_BT > 0, self.epsilon_high, lowest_BT)
        log_ratio_BT = torch.where(self.is_clipped_BT(inputs), bound_BT, log_ratio_BT)
        mean_B1 = row_sum_B1(log_ratio_BT, inputs.mask_BT) / row_length_B1(inputs.mask_BT)
        return torch.where(advantage_BT == 0, 0.0, mean_B1).exp() * advantage_BT

    def is_clipped_BT(self, inputs: LossInputs) -> Tensor:
        """Return where a token's ratio is clipped."""
        log_ratio_BT, advantage_BT = self.log_ratio_and_advantage(inputs)
        above_BT = (advantage_BT > 0) & (log_ratio_BT > self.epsilon_high)
        return above_BT | ((advantage_BT < 0) & (log_ratio_BT < -self.epsilon_low))


class SAPO(Objective):
    """Soft Adaptive Policy Optimization (Gao et al. 2511.20347): a gate in place of the clip.

    J = 1/G sum_i 1/|o_i| sum_t f(rho_it) A_i, f(x) = 4/tau sigmoid(tau (x - 1)), tau = tau_positive
    where A > 0, else tau_negative.

    The gradient's weight, f'(rho) rho, is 1 on policy and falls off smoothly on both sides, faster
    with a larger tau. The negative one is larger, since punishing a token raises all others.

    Left open, and chosen here: the KL term is averaged as in ``GRPO``; rho is bounded at e^20.
    Degenerates: on policy the gradient is ``GRPO``'s; the value is 2/tau times as large.

    Args:
        tau_positive: temperature of tokens with A > 0 (the paper: 1.0).
        tau_negative: of the others (the paper: 1.05).
        **options: of ``Objective``: beta, kl, advantage (GroupNormalized where left out).
    """

    log_ratio_BT = staticmethod(token_log_ratio_BT)
    aggregation_BT = staticmethod(per_response_BT)

    def __init__(
        self, *, tau_positive: float = 1.0, tau_negative: float = 1.05, **options: Any
    ) -> None:
        super().__init__(**options)
        for key, tau in (("tau_positive", tau_positive), ("tau_negative", tau_negative)):
            check_above(key, tau, 0, "the paper uses 1.0 and 1.05")
        self.tau_positive = tau_positive
        self.tau_negative = tau_negative

    def surrogate_BT(self, inputs: LossInputs) -> Tensor:
        """Return f(rho) A."""
        log_ratio_BT, advantage_BT = self.log_ratio_and_advantage(inputs)
        negative_BT = torch.full_like(log_ratio_BT, self.tau_negative)
        tau_BT = torch.where(advantage_BT > 0, self.tau_positive, negative_BT)
        gap_BT = torch.expm1(log_ratio_BT.clamp(max=LARGEST_LOG_RHO))
        return torch.sigmoid(tau_BT * gap_BT) * 4 / tau_BT * advantage_BT

    def is_clipped_BT(self, inputs: LossInputs) -> Tensor:
        """Return that nothing is clipped."""
        return torch.zeros_like(inputs.mask_BT)


class DPPO(Objective):
    """Divergence Proximal Policy Optimization (Qi et al. 2602.04879, Eq. 12), binary divergences.

    J = 1/(sum_i |o_i|) sum_i sum_t M_it rho_it A_i, M = 0 where D_it > threshold and the update
    would lead further away (A > 0 and rho > 1, or A < 0 and rho < 1), else 1.

    D is of the sampled token against all others: "tv" is |pi - pi_old|, "kl" is KL(pi_old || pi) of
    the two outcomes. Both are lower bounds of the whole distribution's. A ratio clip stops rare
    tokens, whose probabilities hardly move, and lets frequent ones move far; this does neither.

    Left open, and chosen here: pi_old is the sampler's policy, so leave ``correction`` null; the
    weight of a token is at most ``max_ratio`` as in the authors' code, and keeps its gradient
    there; the mean is over the minibatch's tokens, as in ``DAPO``. Degenerates: on policy the
    gradient is ``DAPO``'s.

    Args:
        divergence: "tv" or "kl".
        threshold: delta; prime-rl, whose default this objective is, takes 0.2 for "tv". A "kl" is
            smaller: 0.05 say.
        max_ratio: the largest weight.
        **options: of ``Objective``: beta, kl, advantage (GroupNormalized where left out).
    """

    log_ratio_BT = staticmethod(token_log_ratio_BT)
    aggregation_BT = staticmethod(per_token_BT)

    def __init__(
        self,
        *,
        divergence: Literal["tv", "kl"] = "tv",
        threshold: float = 0.2,
        max_ratio: float = 20.0,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        check_one_of("divergence", divergence, ("tv", "kl"))
        check_at_least("threshold", threshold, 0, "0.2 is usual for tv", finite=False)
        check_at_least("max_ratio", max_ratio, 1, "20 in the paper's code", finite=False)
        self.divergence = divergence
        self.threshold = threshold
        self.max_ratio = max_ratio

    def surrogate_BT(self, inputs: LossInputs) -> Tensor:
        """Return M min(rho, max_ratio) A."""
        log_ratio_BT, advantage_BT = self.log_ratio_and_advantage(inputs)
        beyond_BT = (log_ratio_BT - math.log(self.max_ratio)).clamp(min=0).detach()
        surrogate_BT = (log_ratio_BT - beyond_BT).exp() * advantage_BT
        return torch.where(self.is_clipped_BT(inputs), 0.0, surrogate_BT)

    @torch.no_grad()
    def is_clipped_BT(self, inputs: LossInputs) -> Tensor:
        """Return where M is 0."""
        log_ratio_BT, advantage_BT = self.log_ratio_and_advantage(inputs)
        p_BT = hide_padding(inputs.logp_BT, inputs.mask_BT).exp()
        old_BT = hide_padding(inputs.logp_old_BT, inputs.mask_BT).exp()
        if self.divergence == "tv":
            distance_BT = (p_BT - old_BT).abs()
        else:
            others_BT = torch.log1p(-old_BT.clamp(max=MOST)) - torch.log1p(-p_BT.clamp(max=MOST))
            distance_BT = -old_BT * log_ratio_BT + (1 - old_BT) * others_BT
        away_BT = log_ratio_BT * advantage_BT > 0
        return away_BT & (distance_BT > self.threshold) & inputs.mask_BT


class CISPO(Objective):
    """Clipped IS-weight Policy Optimization (MiniMax-M1 2506.13585, Eq. 4 and 5).

    J = 1/(sum_i |o_i|) sum_i sum_t sg(w_it) A_i log pi_theta(o_it),
    w_it = clip(rho_it, 1 - eps_low, 1 + eps_high), sg the stop-gradient, A_i group-normalised,
    no KL term.

    PPO's clip drops the gradient of a token that moved too far; rare words that turn a thought
    ("wait") move first. Here the clip bounds a constant factor, so no token is ever dropped. J is a
    vehicle for its gradient, rho A grad log pi: its *value* holds log pi and is not comparable with
    that of the other objectives.

    Left open, and chosen here: the paper sets no lower bound (epsilon_low None: weights in
    [0, 1 + epsilon_high]) and tunes epsilon_high without printing it. The default 4.0, a cap of 5,
    is ours. Tokens are counted over the minibatch, not over the group, as in ``DAPO``.

    Degenerates: on policy, or where nothing is clipped, the gradient is that of ``DAPO``.

    Args:
        epsilon_high: weights are clipped from above at 1 + epsilon_high.
        epsilon_low: weights are clipped from below at 1 - epsilon_low; None leaves them free.
        **options: of ``Objective``: beta, kl, advantage (GroupNormalized where left out).
    """

    log_ratio_BT = staticmethod(token_log_ratio_BT)
    aggregation_BT = staticmethod(per_token_BT)

    def __init__(
        self, *, epsilon_high: float = 4.0, epsilon_low: float | None = None, **options: Any
    ) -> None:
        super().__init__(**options)
        check_clip("epsilon_high", epsilon_high)
        if epsilon_low is not None:
            check_clip("epsilon_low", epsilon_low)
        self.epsilon_high = epsilon_high
        self.epsilon_low = epsilon_low

    @property
    def log_bounds(self) -> tuple[float, float]:
        """The logs of the smallest and the largest weight."""
        low = 1.0 if self.epsilon_low is None else min(self.epsilon_low, 1.0)
        return -math.inf if low == 1 else math.log1p(-low), math.log1p(self.epsilon_high)

    def surrogate_BT(self, inputs: LossInputs) -> Tensor:
        """Return sg(clip(rho)) A log pi."""
        log_ratio_BT, advantage_BT = self.log_ratio_and_advantage(inputs)
        is_weight_BT = log_ratio_BT.detach().clamp(*self.log_bounds).exp()
        return is_weight_BT * advantage_BT * hide_padding(inputs.logp_BT, inputs.mask_BT)

    def is_clipped_BT(self, inputs: LossInputs) -> Tensor:
        """Return where the weight is clipped and the advantage is not 0, of either sign."""
        log_ratio_BT, advantage_BT = self.log_ratio_and_advantage(inputs)
        low, high = self.log_bounds
        return ((log_ratio_BT < low) | (log_ratio_BT > high)) & (advantage_BT != 0)


class PPO(SymmetricClip):
    """Proximal policy optimisation (1707.06347, Eq. 7), for ``r1lit.modules.PPOModule``.

    J = 1/(sum_i |o_i|) sum_i sum_t min(rho_it A_it, clip(rho_it, 1 - eps, 1 + eps) A_it), A_it from
    a critic (``GAE``).

    Left open, and chosen here: the mean is over the tokens of the minibatch, as in TRL and verl.
    InstructGPT's KL penalty belongs into the reward (``PPOModule.kl_in_reward``); ``beta`` puts one
    into the loss, as GRPO does. Degenerates: with the advantages of a group it is ``DAPO`` of equal
    epsilons.

    Args:
        epsilon: the ratio is clipped to [1 - epsilon, 1 + epsilon].
        advantage: ``GAE()`` where left out.
        **options: of ``Objective``: beta, kl, positive_nll.
    """

    log_ratio_BT = staticmethod(token_log_ratio_BT)
    aggregation_BT = staticmethod(per_token_BT)

    def __init__(
        self, *, epsilon: float = 0.2, advantage: AdvantageEstimator | None = None, **options: Any
    ) -> None:
        super().__init__(epsilon=epsilon, advantage=advantage or GAE(), **options)


class ValueObjective:
    """The critic's loss: the squared error of its values, clipped around the old ones.

    L = 1/(2M) sum over M tokens of max((V - R)^2, (clip(V, V_old - eps, V_old + eps) - R)^2)

    The value loss of PPO's reference implementation ("Implementation Matters", 2005.12729, §3); the
    max makes it pessimistic: a value that has moved by more than eps towards its return learns no
    more.

    Worked example, eps 0.2, V_old 0, R 1: V 0.1 costs 0.81 / 2 and learns; V 0.5 costs 0.64 / 2, as
    V 0.2 does, and has no gradient; V -0.5 costs 2.25 / 2 and learns.

    Args:
        epsilon: how far a value may move in one iteration; null: not clipped.
    """

    def __init__(self, epsilon: float | None = 0.2) -> None:
        check_above("epsilon", epsilon, 0, "null does not clip", finite=False)
        self.epsilon = epsilon

    def loss(
        self,
        value_BT: Tensor,
        value_old_BT: Tensor,
        return_BT: Tensor,
        mask_BT: Tensor,
        num_tokens: float,
    ) -> LossOutputs:
        """Return the loss of some rows, their share of the minibatch's, and metrics.

        Only ``value_BT`` is differentiated. ``num_tokens`` (M) is the whole minibatch's.
        """
        value_BT, old_BT = hide_padding(value_BT, mask_BT), hide_padding(value_old_BT, mask_BT)
        target_BT = hide_padding(return_BT, mask_BT)
        error_BT = (value_BT - target_BT).square()
        worst_BT = error_BT
        if self.epsilon is not None:
            near_BT = old_BT + (value_BT - old_BT).clamp(-self.epsilon, self.epsilon)
            worst_BT = torch.maximum(error_BT, (near_BT - target_BT).square())
        clipped = (worst_BT > error_BT).sum()
        return LossOutputs(
            loss=0.5 * worst_BT.sum() / num_tokens, metrics={"value_clip_fraction": clipped}
        )


class PolicyGradient(Objective):
    """REINFORCE on every token of the minibatch (GPG, 2504.02546, Eq. 4, without its rescaling).

    J = 1/(sum_i |o_i|) sum_i sum_t A_it log pi_theta(o_it): on policy the gradient of ``DAPO``.
    With several updates an iteration nothing makes up for, or bounds, the distance to the policy
    that sampled.

    GPG's advantage is r - mean(r) (``GroupCentered``), RLOO's ``LeaveOneOut``, REINFORCE's
    ``NoBaseline``; the group's mean and std where left out.

    Args:
        **options: of ``Objective``: beta, kl, positive_nll, advantage.
    """

    log_ratio_BT = staticmethod(token_log_ratio_BT)
    aggregation_BT = staticmethod(per_token_BT)

    def surrogate_BT(self, inputs: LossInputs) -> Tensor:
        """Return A log pi."""
        advantage_BT = hide_padding(inputs.advantage_BT.detach(), inputs.mask_BT)
        return advantage_BT * hide_padding(inputs.logp_BT, inputs.mask_BT)

    def is_clipped_BT(self, inputs: LossInputs) -> Tensor:
        """Return that nothing is clipped."""
        return torch.zeros_like(inputs.mask_BT)


class RLOO(PolicyGradient):
    """REINFORCE leave-one-out (Ahmadian et al. 2402.14740, Eq. 8).

    J = 1/G sum_i (r_i - mean of the others' r) log pi_theta(o_i), the log-prob of a response being
    the sum over its tokens: a response is one action, so nothing is divided by its length.

    The paper's reward holds the KL, r - beta log pi/pi_ref of the response: the module's
    ``kl_in_reward``. Its update is on policy; with several an iteration nothing bounds the distance
    (TRL clips a ratio there, the paper finds no need).

    Degenerates: with equal lengths to ``PolicyGradient`` with ``LeaveOneOut``, times that length.

    Args:
        advantage: ``LeaveOneOut()`` where left out.
        **options: of ``Objective``: beta, kl, positive_nll.
    """

    aggregation_BT = staticmethod(partial(per_budget_BT, max_tokens=1))

    def __init__(self, *, advantage: AdvantageEstimator | None = None, **options: Any) -> None:
        super().__init__(advantage=advantage or LeaveOneOut(), **options)
