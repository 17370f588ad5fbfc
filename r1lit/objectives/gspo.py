"""GSPO: the ratio of a response is the geometric mean of its token ratios.

B rows (responses), T response tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor

from r1lit.objectives.advantages import AdvantageEstimator
from r1lit.objectives.clipping import ClippedObjective
from r1lit.objectives.kl import KLName
from r1lit.objectives.ratios import mean_log_ratio_BT
from r1lit.objectives.weights import per_response_BT


class GSPO(ClippedObjective):
    """Group Sequence Policy Optimization (Zheng et al. 2507.18071, Eq. 5 and 7).

    J = 1/G sum_i min(s_i A_i, clip(s_i, 1 - eps_low, 1 + eps_high) A_i),
    s_i = (pi_theta(o_i|q) / pi_old(o_i|q))^(1/|o_i|), A_i group-normalised.

    A response is clipped whole or not at all, as it is rewarded. The mean of logs moves far less
    than a token's, hence clips a thousand times tighter than GRPO's (3e-4 and 4e-4 in §5.1).

    Left open, and chosen here: the paper omits the KL term for brevity; a beta above 0 averages it
    over the tokens of the response, as in GRPO. This is the paper's GSPO, whose gradient reaches
    every token of a response alike; GSPO-token is the same where A is one number a response.

    Degenerates: on policy (s = 1) the gradient is ``GRPO``'s, 1/|o_i| included. With one-token
    responses it is ``GRPO`` of the same epsilons and ``GRPOSequence``.

    Args:
        epsilon_low: the ratio is clipped from below at 1 - epsilon_low.
        epsilon_high: the ratio is clipped from above at 1 + epsilon_high.
        beta: weight of the KL penalty.
        kl: the estimator of the penalty.
        advantage: GroupNormalized where left out.
    """

    def __init__(
        self,
        *,
        epsilon_low: float = 3e-4,
        epsilon_high: float = 4e-4,
        beta: float = 0.0,
        kl: KLName = "k3",
        advantage: AdvantageEstimator | None = None,
    ) -> None:
        super().__init__(
            epsilon_low=epsilon_low,
            epsilon_high=epsilon_high,
            beta=beta,
            kl=kl,
            advantage=advantage,
        )

    def log_ratio_BT(self, *, logp_BT: Tensor, logp_old_BT: Tensor, mask_BT: Tensor) -> Tensor:
        """Return log s of each response, at each of its tokens."""
        return mean_log_ratio_BT(logp_BT, logp_old_BT, mask_BT)

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
