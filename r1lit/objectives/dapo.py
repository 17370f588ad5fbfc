"""DAPO: the clip higher above than below, and every token of the minibatch counted alike.

B rows (responses), T response tokens.
"""

from __future__ import annotations

from typing import Any

from r1lit.objectives.aggregation import per_token_BT
from r1lit.objectives.clipping import ClippedObjective
from r1lit.objectives.ratios import token_log_ratio_BT


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
