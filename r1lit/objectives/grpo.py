"""GRPO as DeepSeekMath prints it: the ratio per token, the mean over a response, then over rows.

B rows (responses), T response tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor

from r1lit.objectives.advantages import AdvantageEstimator
from r1lit.objectives.clipping import ClippedObjective
from r1lit.objectives.kl import KLName
from r1lit.objectives.ratios import token_log_ratio_BT
from r1lit.objectives.weights import per_response_BT


class GRPO(ClippedObjective):
    """Group Relative Policy Optimization (DeepSeekMath 2402.03300, Eq. 3).

    J = 1/G sum_i 1/|o_i| sum_t [ min(rho_it A_i, clip(rho_it, 1 - eps, 1 + eps) A_i) - beta D_KL ],
    rho_it = pi_theta(o_it) / pi_old(o_it), A_i group-normalised, D_KL the k3 estimator (Eq. 4).

    Left open, and chosen here: the mean over questions and over the G responses is one mean over
    the rows of a minibatch (the same where every group is whole or rows are shuffled); eps, which
    the paper does not print, is PPO's 0.2. DeepSeekMath trains with beta = 0.04, R1 with 0.001 and
    eps = 10; beta is 0 here until a reference is asked for. R1 prints the ratio per whole output
    instead: that is ``GRPOSequence``.

    Degenerates: on policy (rho = 1, beta = 0) to REINFORCE with 1/|o_i|. With equal lengths it is
    ``DAPO`` of equal epsilons, and ``DrGRPO`` whose max_tokens is that length.

    Args:
        epsilon: the ratio is clipped to [1 - epsilon, 1 + epsilon]; may exceed 1.
        beta: weight of the KL penalty.
        kl: the estimator of the penalty.
        advantage: GroupNormalized where left out.
    """

    def __init__(
        self,
        *,
        epsilon: float = 0.2,
        beta: float = 0.0,
        kl: KLName = "k3",
        advantage: AdvantageEstimator | None = None,
    ) -> None:
        if not epsilon >= 0:
            raise ValueError(f"epsilon={epsilon}: a clip must be 0 or above (R1 uses 10)")
        super().__init__(
            epsilon_low=epsilon, epsilon_high=epsilon, beta=beta, kl=kl, advantage=advantage
        )
        self.epsilon = epsilon

    def log_ratio_BT(self, *, logp_BT: Tensor, logp_old_BT: Tensor, mask_BT: Tensor) -> Tensor:
        """Return the log-ratio of each token."""
        return token_log_ratio_BT(logp_BT, logp_old_BT, mask_BT)

    def token_weight_BT(
        self,
        mask_BT: Tensor,
        *,
        num_rows: float,
        num_tokens: float,
        dtype: torch.dtype = torch.float32,
    ) -> Tensor:
        """Return 1 / (num_rows * |o_i|)."""
        return per_response_BT(mask_BT, num_rows=num_rows, dtype=dtype)
