"""GSPO: the ratio of a response is the geometric mean of its token ratios.

B rows (responses), T response tokens.
"""

from __future__ import annotations

from typing import Any

from r1lit.objectives.aggregation import per_response_BT
from r1lit.objectives.clipping import ClippedObjective
from r1lit.objectives.ratios import mean_log_ratio_BT


class GSPO(ClippedObjective):
    """Group Sequence Policy Optimization (Zheng et al. 2507.18071, Eq. 5 and 7).

    J = 1/G sum_i min(s_i A_i, clip(s_i, 1 - eps_low, 1 + eps_high) A_i),
    s_i = (pi_theta(o_i|q) / pi_old(o_i|q))^(1/|o_i|), A_i group-normalised.

    A response is clipped whole or not at all, as it is rewarded. The mean of logs moves far less
    than a token's, hence clips a thousand times tighter than GRPO's (3e-4 and 4e-4 in §5.1).

    Left open, and chosen here: the paper omits the KL term for brevity; a beta above 0 averages it
    over the tokens of the response, as in GRPO. This is the paper's GSPO, whose gradient reaches
    every token of a response alike; GSPO-token is the same where A is one number a response.

    Degenerates: on policy (s = 1) the gradient is ``GRPO``'s, 1/|o_i| included. With one-token
    responses it is ``GRPO`` of the same epsilons and ``GRPOSequence``.

    Args:
        epsilon_low: the ratio is clipped from below at 1 - epsilon_low.
        epsilon_high: the ratio is clipped from above at 1 + epsilon_high.
        **options: of ``Objective``: beta, kl, advantage (GroupNormalized where left out).
    """

    log_ratio_BT = staticmethod(mean_log_ratio_BT)
    aggregation_BT = staticmethod(per_response_BT)  # over a response they sum it up once

    def __init__(
        self, *, epsilon_low: float = 3e-4, epsilon_high: float = 4e-4, **options: Any
    ) -> None:
        super().__init__(epsilon_low=epsilon_low, epsilon_high=epsilon_high, **options)
