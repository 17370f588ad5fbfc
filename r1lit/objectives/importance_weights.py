"""Weights of tokens for a sampler that differs from the trainer: engine, dtype, older weights.

    B rows (responses)   T response tokens   rho = pi_train / pi_sampler of a sampled token

They weigh each token's surrogate by a constant made of rho (importance sampling). pi_train
is the old policy as the trainer computes it, before the iteration's first update; the objective's
own ratio then starts from there. KL penalties are not weighed, as in TRL and verl.

Worked example, one response with rho = (1.5, 4, 0.25): truncated at 2: (1.5, 2, 0.25); masked to
[0.5, 5]: (1.5, 4, 0); sequence-masked: the geometric mean 1.5 ** (1/3) = 1.14 lies in [0.5, 2], so
(1.5, 4, 0.25).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Literal

import torch
from torch import Tensor

from r1lit.errors import check_above, check_one_of
from r1lit.objectives.response_ratios import mean_log_ratio_BT
from r1lit.objectives.terms import hide_padding, row_sum_B1, token_log_ratio_BT


class ImportanceWeights(ABC):
    """Weights of tokens, given sampler and trainer; ``r1lit.steps.Correction`` applies them."""

    @abstractmethod
    def weight_BT(self, logp_BT: Tensor, logp_sampler_BT: Tensor, mask_BT: Tensor) -> Tensor:
        """Return the weights; they carry no gradient, and padding is 0.

        Args:
            logp_BT: log-probs of the sampled tokens as the trainer computes them.
            logp_sampler_BT: as the sampler did.
            mask_BT: true at the tokens that count.
        """


class TruncatedImportanceSampling(ImportanceWeights):
    """min(rho, cap): TIS (Yao et al. 2025), Espeholt et al. 1802.01561.

    Args:
        cap: C, the largest weight.
        level: "token", or "sequence" for the product of rho over a response at each of its tokens.
    """

    def __init__(self, cap: float = 2.0, level: Literal["token", "sequence"] = "token") -> None:
        check_above("cap", cap, 0, "2 is usual", finite=False)
        check_one_of("level", level, ("token", "sequence"))
        self.cap = cap
        self.level = level

    @torch.no_grad()
    def weight_BT(self, logp_BT: Tensor, logp_sampler_BT: Tensor, mask_BT: Tensor) -> Tensor:
        """Return min(rho, cap)."""
        log_rho_BT = token_log_ratio_BT(logp_BT, logp_sampler_BT, mask_BT)
        if self.level == "sequence":
            log_rho_BT = row_sum_B1(log_rho_BT, mask_BT).expand_as(log_rho_BT)
        return hide_padding(log_rho_BT.clamp(max=math.log(self.cap)).exp(), mask_BT)


class MaskedImportanceSampling(ImportanceWeights):
    """rho where low <= rho <= high, else 0: MIS, IcePop (Ring-1T 2510.18855).

    Args:
        low: alpha, the least ratio that counts.
        high: beta, the largest.
    """

    def __init__(self, low: float = 0.5, high: float = 5.0) -> None:
        _check_bounds(low, high)
        self.low = low
        self.high = high

    @torch.no_grad()
    def weight_BT(self, logp_BT: Tensor, logp_sampler_BT: Tensor, mask_BT: Tensor) -> Tensor:
        """Return rho within the bounds and 0 outside."""
        log_rho_BT = token_log_ratio_BT(logp_BT, logp_sampler_BT, mask_BT)
        return _exp_where(_within(log_rho_BT, self.low, self.high) & mask_BT, log_rho_BT)


class SequenceMaskedImportanceSampling(ImportanceWeights):
    """rho at the tokens of responses whose geometric mean of rho lies in [low, high], else 0.

    Args:
        low: alpha, the least geometric mean that counts.
        high: beta, the largest.
    """

    def __init__(self, low: float = 0.5, high: float = 2.0) -> None:
        _check_bounds(low, high)
        self.low = low
        self.high = high

    @torch.no_grad()
    def weight_BT(self, logp_BT: Tensor, logp_sampler_BT: Tensor, mask_BT: Tensor) -> Tensor:
        """Return rho in the responses that count."""
        log_rho_BT = token_log_ratio_BT(logp_BT, logp_sampler_BT, mask_BT)
        mean_BT = mean_log_ratio_BT(logp_BT, logp_sampler_BT, mask_BT)
        return _exp_where(_within(mean_BT, self.low, self.high) & mask_BT, log_rho_BT)


def _check_bounds(low: float, high: float) -> None:
    if not 0 < low <= 1:
        raise ValueError(f"low: {low} is not above 0 and at most 1; 0.5 is usual")
    if not high >= 1:
        raise ValueError(f"high: {high} is below 1; 2 or 5 is usual")


def _within(log_BT: Tensor, low: float, high: float) -> Tensor:
    return (log_BT >= math.log(low)) & (log_BT <= math.log(high))


def _exp_where(kept_BT: Tensor, log_BT: Tensor) -> Tensor:
    """Return exp where kept and 0 elsewhere; an infinity that is not kept is never computed."""
    return torch.where(kept_BT, torch.where(kept_BT, log_BT, 0.0).exp(), 0.0)
