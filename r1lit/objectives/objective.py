"""An objective: a surrogate per token, token weights, a KL penalty; and PPO's clipped surrogate.

    B rows (responses)   T response tokens

    J = sum over tokens of aggregation * (weight * surrogate - beta * KL)        loss = -J

``terms`` add to the loss what is no surrogate (``r1lit.objectives.terms_of_loss``).

The aggregation says how much a token counts *in its minibatch*, from the
minibatch's totals. A micro-batch is a slice of the minibatch's rows, and its loss is exactly its
share. So losses and gradients of any split into micro-batches sum to those of the minibatch.

A new objective names its ratio and its aggregation, and writes a surrogate where it is not PPO's:

    class MyGRPO(SymmetricClip):
        log_ratio_BT = staticmethod(token_log_ratio_BT)
        aggregation_BT = staticmethod(per_token_BT)

PPO's is min(rho A, clip(rho, 1 - eps_low, 1 + eps_high) A): PPO (1707.06347) Eq. 7, with separate
bounds for the two sides of the clip as in DAPO (2503.14476) Eq. 10. The min makes the clip
one-sided: it acts where A > 0 and rho > 1 + eps_high, or where A < 0 and rho < 1 - eps_low. There
the surrogate is constant and its gradient 0. For eps_low >= 1 the lower side never acts, since
rho > 0 (R1: epsilon = 10, so rho is bounded to [-9, 11]).

Worked example, eps = 0.2: rho = 1.5 gives 1.2 A for A > 0 and 1.5 A for A < 0; rho = 0.5 gives
0.5 A for A > 0 and 0.8 A for A < 0.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor

from r1lit.errors import check_at_least, check_one_of
from r1lit.objectives.advantages import AdvantageEstimator, GroupNormalized
from r1lit.objectives.loss_inputs import LossInputs, LossOutputs
from r1lit.objectives.response_ratios import mean_log_ratio_BT
from r1lit.objectives.terms import (
    KL_ESTIMATORS,
    KLName,
    approx_kl_BT,
    hide_padding,
    masked_sum,
    reference_kl_BT,
    unbiased_k3_BT,
)
from r1lit.objectives.terms_of_loss import Term


class Objective(ABC):
    """An objective J to maximise; loss = -J.

    Args:
        beta: weight of the KL penalty towards the reference. 0 needs no reference.
        kl: which estimator penalises; ``k1_BT`` and the like say what each one's gradient is.
        off_policy_threshold: leave punished responses out that the policy has moved away from, see
            ``is_off_policy_BT``; null leaves none out. Of use with ``r1lit.collect.Ahead``.
        advantage: how rewards become advantages; the paper's own where left out.
        terms: what is added to the loss beside, such as ``r1lit.objectives.EntropyBonus``.
    """

    log_ratio_BT: Callable[[Tensor, Tensor, Tensor], Tensor]
    """The log of pi / pi_old as this objective uses it, of (logp, logp_old, mask)."""
    aggregation_BT: Callable[..., Tensor]
    """Weight of each token, of (mask, num_rows=, num_tokens=, dtype=); 0 in the padding."""
    is_per_response: bool = False
    """True where the surrogate is one per response, repeated at each of its tokens."""

    def __init__(
        self,
        *,
        beta: float = 0.0,
        kl: KLName = "k3",
        off_policy_threshold: float | None = None,
        advantage: AdvantageEstimator | None = None,
        terms: list[Term] | None = None,
    ) -> None:
        check_at_least("beta", beta, 0, "R1 uses 0.001")
        check_one_of("kl", kl, get_args(KLName))
        self.beta = beta
        self.kl: KLName = kl
        remedy = "it is a mean of nats a token, such as 0.5, or null"
        check_at_least("off_policy_threshold", off_policy_threshold, 0, remedy, finite=False)
        self.off_policy_threshold = off_policy_threshold
        self.advantage = GroupNormalized() if advantage is None else advantage
        self.terms = terms or []

    @abstractmethod
    def surrogate_BT(self, inputs: LossInputs) -> Tensor:
        """Return each token's summand of J before aggregation and penalty; the padding is finite.

        An objective with one surrogate per response repeats it at each of its tokens.
        """

    @abstractmethod
    def is_clipped_BT(self, inputs: LossInputs) -> Tensor:
        """Return where the clip changes the surrogate, as booleans; the padding is false."""

    def loss(self, inputs: LossInputs) -> LossOutputs:
        """Return -sum(aggregation * (weight * surrogate - beta * KL)) of these rows, and metrics.

        ``terms`` are not in it: their means are over tokens of their own. Only ``logp_BT`` is
        differentiated: the old policy, the reference and the advantages are constants of the
        equations.

        Raises:
            ValueError: when ``beta`` is above 0 and ``logp_ref_BT`` is None.
        """
        mask_BT = inputs.mask_BT
        objective_BT = self.surrogate_BT(inputs)
        if inputs.weight_BT is not None:
            objective_BT = objective_BT * hide_padding(inputs.weight_BT.detach(), mask_BT)
        if self.off_policy_threshold is not None:
            off_policy_BT = is_off_policy_BT(inputs, self.off_policy_threshold)
            objective_BT = torch.where(off_policy_BT, 0.0, objective_BT)
        if self.beta > 0:
            if inputs.logp_ref_BT is None:
                raise ValueError(
                    f"beta={self.beta}: a KL penalty needs the reference's log-probs, and "
                    "logp_ref_BT is None; pass them, or set beta to 0"
                )
            logps_BT = [inputs.logp_BT, inputs.logp_ref_BT.detach(), inputs.logp_old_BT.detach()]
            logp_BT, logp_ref_BT, logp_old_BT = (hide_padding(x, mask_BT) for x in logps_BT)
            if self.kl == "unbiased_k3":
                kl_BT = unbiased_k3_BT(logp_BT, logp_ref_BT, logp_old_BT)
            else:
                kl_BT = KL_ESTIMATORS[self.kl](logp_BT, logp_ref_BT)
            objective_BT = objective_BT - self.beta * kl_BT
        share_BT = self.aggregation_BT(
            mask_BT,
            num_rows=inputs.num_rows,
            num_tokens=inputs.num_tokens,
            dtype=inputs.logp_BT.dtype,
        )
        loss = -hide_padding(share_BT * objective_BT, mask_BT).sum()
        return LossOutputs(loss=loss, metrics=self.metrics(inputs))

    def select_tokens(self, covariance_N: Tensor, random: np.random.Generator) -> Tensor | None:
        """Return the tokens that this objective treats apart, None if it treats none so.

        Args:
            covariance_N: each token's share of the covariance of log-prob and advantage, over the
                iteration's tokens that count, of all ranks; minus infinity where the advantage is 0
                (``r1lit.objectives.covariance``).
            random: the iteration's, the same on all ranks.
        """
        return None

    def log_ratio_and_advantage(self, inputs: LossInputs) -> tuple[Tensor, Tensor]:
        """Return the log ratio and the constant advantage of each token, both 0 in the padding."""
        mask_BT = inputs.mask_BT
        log_ratio_BT = self.log_ratio_BT(inputs.logp_BT, inputs.logp_old_BT.detach(), mask_BT)
        return log_ratio_BT, hide_padding(inputs.advantage_BT.detach(), mask_BT)

    @torch.no_grad()
    def metrics(self, inputs: LossInputs) -> dict[str, Tensor]:
        """Return the objective's metrics, each summed over the tokens that count."""
        mask_BT = inputs.mask_BT
        values = {
            "clip_fraction": self.is_clipped_BT(inputs).float(),
            "approx_kl_old": approx_kl_BT(inputs.logp_BT, inputs.logp_old_BT, mask_BT),
        }
        if self.off_policy_threshold is not None:
            values["off_policy"] = is_off_policy_BT(inputs, self.off_policy_threshold).float()
        if inputs.logp_ref_BT is not None:
            values["kl_reference"] = reference_kl_BT(inputs.logp_BT, inputs.logp_ref_BT, mask_BT)
        return {name: masked_sum(value_BT, mask_BT) for name, value_BT in values.items()}

    def skips_zero_advantage(self) -> bool:
        """Return whether a row of advantage 0 has loss 0 and gradient 0, so it can be left out.

        True of every objective here when ``beta`` is 0 and there are no terms. It is tried on two
        tokens, since a subclass may do otherwise.
        """
        if self.beta > 0 or self.terms:
            return False
        with torch.enable_grad():
            logp_BT = torch.tensor([[-0.5, -2.0]], requires_grad=True)
            inputs = LossInputs(
                logp_BT=logp_BT,
                logp_old_BT=torch.tensor([[-1.0, -1.0]]),
                advantage_BT=torch.zeros(1, 2),
                mask_BT=torch.ones(1, 2, dtype=torch.bool),
                num_rows=1.0,
                num_tokens=2.0,
            )
            surrogate_BT = self.surrogate_BT(inputs)
            (gradient_BT,) = torch.autograd.grad(surrogate_BT.sum(), logp_BT, allow_unused=True)
        still = gradient_BT is None or not bool(gradient_BT.any())
        return still and not bool(surrogate_BT.any())


@torch.no_grad()
def is_off_policy_BT(inputs: LossInputs, threshold: float) -> Tensor:
    """Return the tokens that off-policy sequence masking leaves out (V3.2 2512.02556, Eq. 8, 9).

    M_it = 0 where A_it < 0 and 1/|o_i| sum_t log pi_sampler(o_it)/pi(o_it) > threshold, else 1: a
    wrong response that the policy would hardly produce any more teaches nothing it needs, and its
    ratio has no bound. pi_sampler is what the rollout engine reports, so that its mismatch counts,
    and pi the policy at this very update. The KL penalty stays. The paper prints no threshold.

    Worked example, threshold 0.5, two tokens with log pi_sampler (-1, -1), log pi (-1.5, -2): the
    mean is 0.75, so both tokens are left out where A < 0, and stay where A >= 0.
    """
    logps_BT = inputs.logp_old_BT, inputs.logp_sampler_BT
    sampler_BT = logps_BT[0] if logps_BT[1] is None else logps_BT[1]
    distance_BT = mean_log_ratio_BT(sampler_BT, inputs.logp_BT, inputs.mask_BT)
    return inputs.mask_BT & (inputs.advantage_BT < 0) & (distance_BT > threshold)


# the clipped surrogate


def is_clipped_BT(
    log_ratio_BT: Tensor, advantage_BT: Tensor, *, epsilon_low: float, epsilon_high: float
) -> Tensor:
    """Return where the min picks the clipped branch, as booleans.

    Decided in logs, so a ratio too large for its float type still differs from one that is not.
    """
    log_low = math.log1p(-epsilon_low) if epsilon_low < 1 else -math.inf
    log_high = math.log1p(epsilon_high)
    above_BT = (advantage_BT > 0) & (log_ratio_BT > log_high)
    below_BT = (advantage_BT < 0) & (log_ratio_BT < log_low)
    return above_BT | below_BT


def clipped_surrogate_BT(
    log_ratio_BT: Tensor, advantage_BT: Tensor, *, epsilon_low: float, epsilon_high: float
) -> Tensor:
    """Return min(rho A, clip(rho) A).

    Where the ratio is clipped, or A is 0, it is never computed: exp of a whole-output log-ratio may
    overflow, and a 0 gradient through an infinity is a NaN.
    """
    clipped_BT = is_clipped_BT(
        log_ratio_BT, advantage_BT, epsilon_low=epsilon_low, epsilon_high=epsilon_high
    )
    ratio_BT = torch.where(clipped_BT | (advantage_BT == 0), 0.0, log_ratio_BT).exp()
    ratio_BT = torch.where(clipped_BT & (advantage_BT > 0), 1 + epsilon_high, ratio_BT)
    ratio_BT = torch.where(clipped_BT & (advantage_BT < 0), 1 - epsilon_low, ratio_BT)
    return ratio_BT * advantage_BT


class ClippedObjective(Objective):
    """An objective whose surrogate is PPO's clip; subclasses name ratio and aggregation.

    Args:
        epsilon_low: the ratio is clipped from below at 1 - epsilon_low.
        epsilon_high: the ratio is clipped from above at 1 + epsilon_high.
        **options: of ``Objective``: beta, kl, advantage.
    """

    def __init__(self, *, epsilon_low: float, epsilon_high: float, **options: Any) -> None:
        super().__init__(**options)
        check_clip("epsilon_low", epsilon_low)
        check_clip("epsilon_high", epsilon_high)
        self.epsilon_low = epsilon_low
        self.epsilon_high = epsilon_high
        self._clip = {"epsilon_low": epsilon_low, "epsilon_high": epsilon_high}

    def surrogate_BT(self, inputs: LossInputs) -> Tensor:
        """Return min(rho A, clip(rho) A)."""
        log_ratio_BT, advantage_BT = self.log_ratio_and_advantage(inputs)
        return clipped_surrogate_BT(log_ratio_BT, advantage_BT, **self._clip)

    def is_clipped_BT(self, inputs: LossInputs) -> Tensor:
        """Return where the clipped branch is picked."""
        log_ratio_BT, advantage_BT = self.log_ratio_and_advantage(inputs)
        return is_clipped_BT(log_ratio_BT, advantage_BT, **self._clip)


class SymmetricClip(ClippedObjective):
    """A clip to [1 - epsilon, 1 + epsilon].

    Args:
        epsilon: half the clip's width; may exceed 1.
        **options: of ``Objective``: beta, kl, advantage.
    """

    def __init__(self, *, epsilon: float = 0.2, **options: Any) -> None:
        check_clip("epsilon", epsilon)
        super().__init__(epsilon_low=epsilon, epsilon_high=epsilon, **options)
        self.epsilon = epsilon


def check_clip(name: str, value: float) -> None:
    """Raise a ValueError unless ``value`` is 0 or above."""
    check_at_least(name, value, 0, "R1 clips at 10", finite=False)
