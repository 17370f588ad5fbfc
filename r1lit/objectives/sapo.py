"""SAPO: a soft gate in place of the clip."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from r1lit.errors import check_above
from r1lit.objectives.loss_inputs import LossInputs
from r1lit.objectives.objective import Objective
from r1lit.objectives.terms import (
    LARGEST_LOG_RHO,
    hide_zero_BT,
    per_response_BT,
    token_log_ratio_BT,
)


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
        log_ratio_BT = hide_zero_BT(log_ratio_BT, advantage_BT)
        gap_BT = torch.expm1(log_ratio_BT.clamp(max=LARGEST_LOG_RHO))
        return torch.sigmoid(tau_BT * gap_BT) * 4 / tau_BT * advantage_BT

    def is_clipped_BT(self, inputs: LossInputs) -> Tensor:
        """Return that nothing is clipped."""
        return torch.zeros_like(inputs.mask_BT)
