"""The plain policy gradient: no ratio, no clip.

B rows (responses), T response tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor

from r1lit.objectives.aggregation import per_token_BT
from r1lit.objectives.base import LossInputs, Objective
from r1lit.objectives.masking import hide_padding
from r1lit.objectives.ratios import token_log_ratio_BT


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
