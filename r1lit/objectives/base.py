"""What an objective is: a surrogate per token, a weight per token, and a KL penalty.

    B rows (responses)   T response tokens

    J = sum over tokens of weight * (surrogate - beta * KL)        loss = -J

The weight says how much a token counts *in its minibatch* and is where the papers differ in
normalisation; it is computed from the minibatch's totals, which the caller passes in. A micro-batch
is a slice of the minibatch's rows, so its loss is exactly its share: the losses, and the gradients,
of any split into micro-batches sum to those of the minibatch.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from r1lit.objectives.advantages import AdvantageEstimator, GroupNormalized
from r1lit.objectives.kl import KL_ESTIMATORS, KLName
from r1lit.objectives.masking import hide_padding


class Objective(ABC):
    """An objective J to maximise; loss = -J.

    The log-probs of padding may be anything, NaN too: the loss does not see them and their gradient
    is exactly 0. Log-probs should be float32 or wider, under autocast too: a ratio is the
    exponential of a difference of two of them.

    Args:
        beta: weight of the KL penalty towards the reference. 0 needs no reference.
        kl: which estimator penalises; see ``r1lit.objectives.kl`` for what each one's gradient is.
        advantage: how rewards become advantages; the paper's own where left out.
    """

    def __init__(
        self,
        *,
        beta: float = 0.0,
        kl: KLName = "k3",
        advantage: AdvantageEstimator | None = None,
    ) -> None:
        if not (math.isfinite(beta) and beta >= 0):
            raise ValueError(f"beta={beta}: must be 0 or above (R1 uses 0.001)")
        if kl not in KL_ESTIMATORS:
            raise ValueError(f"kl={kl!r}: must be one of {', '.join(KL_ESTIMATORS)}")
        self.beta = beta
        self.kl: KLName = kl
        self.advantage = GroupNormalized() if advantage is None else advantage

    @abstractmethod
    def token_weight_BT(
        self,
        mask_BT: Tensor,
        *,
        num_rows: float,
        num_tokens: float,
        dtype: torch.dtype = torch.float32,
    ) -> Tensor:
        """Return how much each token counts in the minibatch; 0 in the padding.

        ``mask_BT`` may be any rows of the minibatch; ``num_rows`` and ``num_tokens`` are the whole
        minibatch's. Under DDP, which averages gradients over ranks, pass the mean over ranks of
        each: then the averaged gradient is that of the global minibatch.
        """

    @abstractmethod
    def log_ratio_BT(self, *, logp_BT: Tensor, logp_old_BT: Tensor, mask_BT: Tensor) -> Tensor:
        """Return the log of the ratio as this objective uses it; the padding is finite."""

    @abstractmethod
    def surrogate_BT(
        self, *, logp_BT: Tensor, logp_old_BT: Tensor, advantage_B: Tensor, mask_BT: Tensor
    ) -> Tensor:
        """Return what each token adds to J before weight and penalty; the padding is finite.

        An objective with one surrogate per response repeats it at each of its tokens.
        """

    @abstractmethod
    def clip_acts_BT(
        self, *, logp_BT: Tensor, logp_old_BT: Tensor, advantage_B: Tensor, mask_BT: Tensor
    ) -> Tensor:
        """Return where the clip changes the surrogate, as booleans; the padding is false."""

    def ratio_BT(self, *, logp_BT: Tensor, logp_old_BT: Tensor, mask_BT: Tensor) -> Tensor:
        """Return the ratio pi_theta / pi_old as this objective uses it, for diagnostics."""
        return self.log_ratio_BT(logp_BT=logp_BT, logp_old_BT=logp_old_BT, mask_BT=mask_BT).exp()

    def skips_zero_advantage(self) -> bool:
        """Return whether a row of advantage 0 has loss 0 and gradient 0, so it can be left out.

        True of every objective here when ``beta`` is 0. Tried on two tokens, since a subclass may
        add a term of its own.
        """
        if self.beta > 0:
            return False
        with torch.enable_grad():
            logp_BT = torch.tensor([[-0.5, -2.0]], requires_grad=True)
            surrogate_BT = self.surrogate_BT(
                logp_BT=logp_BT,
                logp_old_BT=torch.tensor([[-1.0, -1.0]]),
                advantage_B=torch.zeros(1),
                mask_BT=torch.ones(1, 2, dtype=torch.bool),
            )
            (gradient_BT,) = torch.autograd.grad(surrogate_BT.sum(), logp_BT, allow_unused=True)
        still = gradient_BT is None or not bool(gradient_BT.any())
        return still and not bool(surrogate_BT.any())

    def loss(
        self,
        *,
        logp_BT: Tensor,
        logp_old_BT: Tensor,
        logp_ref_BT: Tensor | None,
        advantage_B: Tensor,
        mask_BT: Tensor,
        weight_BT: Tensor,
    ) -> Tensor:
        """Return the scalar -sum(weight * (surrogate - beta * KL)) of these rows.

        Only ``logp_BT`` is differentiated: the old policy and the reference are constants of the
        equations, and are detached. ``weight_BT`` comes from ``token_weight_BT``.

        Raises:
            ValueError: when ``beta`` is above 0 and ``logp_ref_BT`` is None.
        """
        assert mask_BT.dtype == torch.bool and mask_BT.ndim == 2, (mask_BT.dtype, mask_BT.shape)
        assert logp_BT.shape == logp_old_BT.shape == mask_BT.shape == weight_BT.shape
        assert advantage_B.shape == mask_BT.shape[:1], (advantage_B.shape, mask_BT.shape)
        logp_BT = hide_padding(logp_BT, mask_BT)
        objective_BT = self.surrogate_BT(
            logp_BT=logp_BT,
            logp_old_BT=logp_old_BT.detach(),
            advantage_B=advantage_B.detach(),
            mask_BT=mask_BT,
        )
        if self.beta > 0:
            if logp_ref_BT is None:
                raise ValueError(
                    f"beta={self.beta}: a KL penalty needs the reference's log-probs, and "
                    "logp_ref_BT is None; pass them, or set beta to 0"
                )
            assert logp_ref_BT.shape == mask_BT.shape, (logp_ref_BT.shape, mask_BT.shape)
            kl_BT = KL_ESTIMATORS[self.kl](logp_BT, hide_padding(logp_ref_BT.detach(), mask_BT))
            objective_BT = objective_BT - self.beta * kl_BT
        return -hide_padding(weight_BT * objective_BT, mask_BT).sum()
