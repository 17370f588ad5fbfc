"""Clip-Cov and KL-Cov: restrain the few tokens whose updates cost most of the entropy.

    B rows (responses)   T response tokens   N tokens of an iteration that count, of all ranks

"The Entropy Mechanism of Reinforcement Learning for Reasoning Language Models" (Cui et al.
2505.22617): an update of softmax logits lowers the entropy by about the covariance of log-prob and
advantage, and a few tokens, likely and rewarded ones, make most of it. A token's share of it is

    Cov_n = (log pi(o_n) - mean log pi) (A_n - mean A)

Which tokens are held back is decided once an iteration, at the policy that sampled, so that no
split into micro-batches matters; the authors' code decides in each micro-batch, at the policy as it
is then. Tokens of advantage 0 are never selected: they are no part of an update.

Worked example, log-probs (-1, -3, -1, -3), advantages (2, 2, -2, -2): means -2 and 0, Cov
(2, -2, -2, 2). Likely and rewarded, or unlikely and punished: the policy sharpens.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from r1lit.errors import check_at_least
from r1lit.objectives.loss_inputs import SELECTED, LossInputs
from r1lit.objectives.objective import ClippedObjective, Objective
from r1lit.objectives.terms import (
    LARGEST_LOG_RHO,
    hide_padding,
    hide_zero_BT,
    num_selected,
    per_token_BT,
    token_log_ratio_BT,
)

LEAST_MOVE = 1e-4
"""A log-ratio nearer to 0 is taken for rounding."""


class ClipCov(ClippedObjective):
    """Clip-Cov (2505.22617, Eq. 11): a few tokens of high covariance get no gradient.

    J = 1/(sum_i |o_i|) sum_i sum_t m_it min(rho_it A_it, clip(rho_it, 1 - eps, 1 + eps) A_it),
    m = 0 at selected_share * N tokens chosen at random from those with a covariance within
    (covariance_low, covariance_high), else 1.

    Left open, and chosen here: PPO's clip besides, which the paper has in the code and not in the
    equation; see the module's docstring for when tokens are selected. Degenerates: where no
    covariance is within the bounds it is ``DAPO`` of the same epsilons.

    Args:
        selected_share: share of all tokens that is held back; one token at least.
        covariance_low: tokens of a lower covariance are never held back.
        covariance_high: nor those of a higher one.
        epsilon_low: the ratio is clipped from below at 1 - epsilon_low.
        epsilon_high: the ratio is clipped from above at 1 + epsilon_high.
        **options: of ``Objective``: beta, kl, advantage, terms.
    """

    log_ratio_BT = staticmethod(token_log_ratio_BT)
    aggregation_BT = staticmethod(per_token_BT)

    def __init__(
        self,
        *,
        selected_share: float = 2e-4,
        covariance_low: float = 1.0,
        covariance_high: float = 5.0,
        epsilon_low: float = 0.2,
        epsilon_high: float = 0.2,
        **options: Any,
    ) -> None:
        super().__init__(epsilon_low=epsilon_low, epsilon_high=epsilon_high, **options)
        _check_share(selected_share)
        if not covariance_low < covariance_high:
            raise ValueError(
                f"covariance_low={covariance_low}: must be below covariance_high={covariance_high}"
                " (the paper uses 1 and 5)"
            )
        self.selected_share = selected_share
        self.covariance_low = covariance_low
        self.covariance_high = covariance_high

    def select_tokens(self, covariance_N: Tensor, random: np.random.Generator) -> Tensor:
        """Return the tokens that are held back, sampled from those within the bounds."""
        within_N = (covariance_N > self.covariance_low) & (covariance_N < self.covariance_high)
        index_K = within_N.nonzero()[:, 0]
        order = torch.from_numpy(random.permutation(len(index_K)))
        chosen = order[: num_selected(self.selected_share, len(covariance_N))]
        return torch.zeros_like(within_N).index_fill(0, index_K[chosen.to(index_K.device)], True)

    def surrogate_BT(self, inputs: LossInputs) -> Tensor:
        """Return min(rho A, clip(rho) A), and 0 where a token is held back."""
        surrogate_BT = super().surrogate_BT(inputs)
        if (selected_BT := inputs.extra_BT.get(SELECTED)) is None:
            return surrogate_BT
        return torch.where(selected_BT, 0.0, surrogate_BT)

    def is_clipped_BT(self, inputs: LossInputs) -> Tensor:
        """Return where the clipped branch is picked, or the token is held back."""
        clipped_BT = super().is_clipped_BT(inputs)
        if (selected_BT := inputs.extra_BT.get(SELECTED)) is None:
            return clipped_BT
        return clipped_BT | (selected_BT & inputs.mask_BT)


class KLCov(Objective):
    """KL-Cov (2505.22617, Eq. 13): the tokens of the highest covariance are kept where they were.

    J = 1/(sum_i |o_i|) sum_i sum_t [ rho_it A_it - kl_weight s_it |log rho_it| ], s = 1 at the
    selected_share * N tokens of the highest covariance, else 0.

    The equation has KL(pi_old || pi) there; this is the authors' code, and verl's. Like theirs
    it has no clip; a ratio is bounded at e^20, so that it stays finite. Unlike theirs a token with
    |log rho_it| below 1e-4 is not penalised, since rounding alone would push it with the whole
    weight. The paper takes a selected_share of 2e-3 for 7B and 2e-4 for 32B. Degenerates: on
    policy the gradient is ``DAPO``'s.

    Args:
        selected_share: share of all tokens that is penalised; one token at least.
        kl_weight: weight of the penalty.
        **options: of ``Objective``: beta, kl, advantage, terms.
    """

    log_ratio_BT = staticmethod(token_log_ratio_BT)
    aggregation_BT = staticmethod(per_token_BT)

    def __init__(
        self, *, selected_share: float = 2e-3, kl_weight: float = 1.0, **options: Any
    ) -> None:
        super().__init__(**options)
        _check_share(selected_share)
        check_at_least("kl_weight", kl_weight, 0, "the paper uses 1")
        self.selected_share = selected_share
        self.kl_weight = kl_weight

    def select_tokens(self, covariance_N: Tensor, random: np.random.Generator) -> Tensor:
        """Return the tokens of the highest covariance, the earlier of equals."""
        order_N = covariance_N.argsort(descending=True, stable=True)
        chosen = order_N[: num_selected(self.selected_share, len(covariance_N))]
        selected_N = torch.zeros_like(covariance_N, dtype=torch.bool).index_fill(0, chosen, True)
        return selected_N & covariance_N.isfinite()

    def surrogate_BT(self, inputs: LossInputs) -> Tensor:
        """Return rho A, less the penalty where a token is selected."""
        log_ratio_BT, advantage_BT = self.log_ratio_and_advantage(inputs)
        ratio_BT = hide_zero_BT(log_ratio_BT, advantage_BT).clamp(max=LARGEST_LOG_RHO).exp()
        surrogate_BT = ratio_BT * advantage_BT
        if (selected_BT := inputs.extra_BT.get(SELECTED)) is None:
            return surrogate_BT
        moved_BT = selected_BT & (log_ratio_BT.detach().abs() > LEAST_MOVE)
        penalty_BT = hide_padding(log_ratio_BT.abs(), moved_BT)
        return surrogate_BT - self.kl_weight * penalty_BT

    def is_clipped_BT(self, inputs: LossInputs) -> Tensor:
        """Return that nothing is clipped."""
        return torch.zeros_like(inputs.mask_BT)


def _check_share(share: float) -> None:
    if not 0 < share <= 1:
        raise ValueError(
            f"selected_share={share}: must be above 0 and at most 1 (the paper uses 0.0002)"
        )
