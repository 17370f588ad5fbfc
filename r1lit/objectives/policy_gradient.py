"""Policy gradient without a ratio or a clip, and RLOO.

B rows (responses)   T response tokens
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from r1lit.objectives.advantages import AdvantageEstimator, LeaveOneOut
from r1lit.objectives.loss_inputs import LossInputs
from r1lit.objectives.objective import Objective
from r1lit.objectives.terms import (
    hide_padding,
    hide_zero_BT,
    per_budget_BT,
    per_token_BT,
    token_log_ratio_BT,
)


class PolicyGradient(Objective):
    """REINFORCE on every token of the minibatch (GPG, 2504.02546, Eq. 4, without its rescaling).

    J = 1/(sum_i |o_i|) sum_i sum_t A_it log pi_theta(o_it): on policy the gradient of ``DAPO``.
    With several updates an iteration nothing makes up for, or bounds, the distance to the policy
    that sampled.

    GPG's advantage is r - mean(r) (``GroupCentered``), RLOO's ``LeaveOneOut``, REINFORCE's
    ``NoBaseline``; the group's mean and std where left out.

    Args:
        **options: of ``Objective``: beta, kl, advantage, terms.
    """

    log_ratio_BT = staticmethod(token_log_ratio_BT)
    aggregation_BT = staticmethod(per_token_BT)

    def surrogate_BT(self, inputs: LossInputs) -> Tensor:
        """Return A log pi."""
        advantage_BT = hide_padding(inputs.advantage_BT.detach(), inputs.mask_BT)
        logp_BT = hide_padding(inputs.logp_BT, inputs.mask_BT)
        return advantage_BT * hide_zero_BT(logp_BT, advantage_BT)

    def is_clipped_BT(self, inputs: LossInputs) -> Tensor:
        """Return that nothing is clipped."""
        return torch.zeros_like(inputs.mask_BT)


class RLOO(PolicyGradient):
    """REINFORCE leave-one-out (Ahmadian et al. 2402.14740, Eq. 8).

    J = 1/G sum_i (r_i - mean of the others' r) log pi_theta(o_i), the log-prob of a response being
    the sum over its tokens: a response is one action, so nothing is divided by its length.

    The paper's reward holds the KL, r - beta log pi/pi_ref of the response: the step
    ``KLInReward``. Its update is on policy; with several an iteration nothing bounds the distance
    (TRL clips a ratio there, the paper finds no need).

    Degenerates: with equal lengths to ``PolicyGradient`` with ``LeaveOneOut``, times that length.

    Args:
        advantage: ``LeaveOneOut()`` where left out.
        **options: of ``Objective``: beta, kl, terms.
    """

    aggregation_BT = staticmethod(partial(per_budget_BT, max_tokens=1))

    def __init__(self, *, advantage: AdvantageEstimator | None = None, **options: Any) -> None:
        super().__init__(advantage=advantage or LeaveOneOut(), **options)
