"""GRPO and its forms that average over tokens otherwise: GRPOSequence, Dr. GRPO, DAPO."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from r1lit.errors import check_at_least
from r1lit.objectives.advantages import AdvantageEstimator, GroupCentered
from r1lit.objectives.objective import ClippedObjective, SymmetricClip
from r1lit.objectives.response_ratios import output_log_ratio_BT
from r1lit.objectives.terms import per_budget_BT, per_response_BT, per_token_BT, token_log_ratio_BT


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
    is_per_response = True

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
