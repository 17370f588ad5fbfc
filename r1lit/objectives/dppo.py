"""DPPO: tokens leave the loss by how far their probability moved, not its ratio."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor

from r1lit.errors import check_at_least, check_one_of
from r1lit.objectives.loss_inputs import LossInputs
from r1lit.objectives.objective import Objective
from r1lit.objectives.terms import hide_padding, hide_zero_BT, per_token_BT, token_log_ratio_BT

LARGEST_PROBABILITY = 1 - 1e-6
"""The largest probability of a token in a binary divergence: the others keep some."""


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
        log_ratio_BT = hide_zero_BT(log_ratio_BT, advantage_BT)
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
            others_BT = torch.log1p(-old_BT.clamp(max=LARGEST_PROBABILITY)) - torch.log1p(
                -p_BT.clamp(max=LARGEST_PROBABILITY)
            )
            distance_BT = -old_BT * log_ratio_BT + (1 - old_BT) * others_BT
        away_BT = log_ratio_BT * advantage_BT > 0
        return away_BT & (distance_BT > self.threshold) & inputs.mask_BT
