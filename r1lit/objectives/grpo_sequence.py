"""GRPO as DeepSeek-R1 prints it: one ratio per whole output.

B rows (responses), T response tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor

from r1lit.objectives.advantages import AdvantageEstimator
from r1lit.objectives.clipping import ClippedObjective
from r1lit.objectives.kl import KLName
from r1lit.objectives.ratios import output_log_ratio_BT
from r1lit.objectives.weights import per_response_BT


class GRPOSequence(ClippedObjective):
    """GRPO with one ratio per whole output (DeepSeek-R1 2501.12948v1, Eq. 1; Nature 645:633).

    J = 1/G sum_i [ min(rho_i A_i, clip(rho_i, 1 - eps, 1 + eps) A_i) - beta D_KL ],
    rho_i = pi_theta(o_i|q) / pi_old(o_i|q), the product of the token ratios.

    Left open, and chosen here: D_KL is printed for the output. Read as one sample of k3 for the
    whole output it would hold exp of a sum over thousands of tokens, and overflow; summed over
    tokens its weight would grow with the length. It is *averaged over the tokens* of the output, as
    in DeepSeekMath's Eq. 3, so that one beta means the same in both classes. (Multiply beta by the
    typical length for the sum.) epsilon is R1's 10: a product of ratios strays much further from 1
    than a token's ratio, and 0.2 would clip nearly every long output after one update.

    The product may overflow its float where A < 0 (where A > 0 the clip caps it at 1 + eps): the
    loss is then infinite, which is what the equation says and better seen than hidden.

    Degenerates: on policy (rho = 1) the gradient is A_i sum_t grad log pi, *without* 1/|o_i|: with
    the same advantages max_tokens times that of ``DrGRPO``, and so R1's print, read literally, does
    not have GRPO's length bias. With one-token responses it is ``GRPO`` and ``GSPO``.

    Args:
        epsilon: the ratio is clipped to [1 - epsilon, 1 + epsilon]; may exceed 1.
        beta: weight of the KL penalty.
        kl: the estimator of the penalty.
        advantage: GroupNormalized where left out.
    """

    def __init__(
        self,
        *,
        epsilon: float = 10.0,
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
        """Return the log-ratio of each whole output, at each of its tokens."""
        return output_log_ratio_BT(logp_BT, logp_old_BT, mask_BT)

    def token_weight_BT(
        self,
        mask_BT: Tensor,
        *,
        num_rows: float,
        num_tokens: float,
        dtype: torch.dtype = torch.float32,
    ) -> Tensor:
        """Return 1 / (num_rows * |o_i|): over a response they sum the surrogate up once."""
        return per_response_BT(mask_BT, num_rows=num_rows, dtype=dtype)
