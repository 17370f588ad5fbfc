"""RLOO: REINFORCE on whole responses, with the mean of the others as its baseline.

B rows (responses), T response tokens.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from r1lit.objectives.advantages import AdvantageEstimator, LeaveOneOut
from r1lit.objectives.aggregation import per_budget_BT
from r1lit.objectives.policy_gradient import PolicyGradient


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
