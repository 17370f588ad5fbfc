"""GMPO: the geometric mean of a response's token ratios, each clipped."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from r1lit.objectives.loss_inputs import LossInputs
from r1lit.objectives.objective import Objective, check_clip
from r1lit.objectives.terms import per_response_BT, row_length_B1, row_sum_B1, token_log_ratio_BT


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
    is_per_response = True

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
