"""GSPO: the ratio of a whole response, in place of one a token."""

from __future__ import annotations

from typing import Any

from r1lit.objectives.objective import ClippedObjective
from r1lit.objectives.response_ratios import mean_and_token_log_ratio_BT, mean_log_ratio_BT
from r1lit.objectives.terms import per_response_BT


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
    is_per_response = True

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
    is_per_response = False
