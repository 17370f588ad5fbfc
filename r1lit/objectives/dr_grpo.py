"""Dr. GRPO: GRPO without its two biases, of length and of difficulty.

B rows (responses), T response tokens.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from r1lit.objectives.advantages import AdvantageEstimator, GroupCentered
from r1lit.objectives.aggregation import per_budget_BT
from r1lit.objectives.clipping import SymmetricClip
from r1lit.objectives.ratios import token_log_ratio_BT


class DrGRPO(SymmetricClip):
    """GRPO done right (Liu et al. 2503.20783, §3.2): no 1/|o_i| and no division by the std.

    J = 1/G sum_i sum_t min(rho_it A_i, clip(rho_it, 1 - eps, 1 + eps) A_i), A_i = r_i - mean(r).

    1/|o_i| makes a long wrong response cheaper per token than a short one; without it the gradient
    on policy is that of the expected return. The equation sums over tokens; the paper's code
    divides by a constant, the generation budget, and so does this class: the bias is gone as long
    as the constant does not depend on the responses. max_tokens has no default, since it scales the
    gradient; set it to the rollout's limit on response tokens.

    Left open, and chosen here: the paper drops the KL term (beta = 0); a beta above 0 is normalised
    by the budget too, like the surrogate.

    Degenerates: with ``GroupNormalized`` and all responses exactly max_tokens long it is ``GRPO``.

    Args:
        max_tokens: the constant that divides the sum over tokens of a response.
        epsilon: the ratio is clipped to [1 - epsilon, 1 + epsilon]; may exceed 1.
        **options: of ``Objective``: beta, kl, advantage (GroupCentered where left out).
    """

    log_ratio_BT = staticmethod(token_log_ratio_BT)

    def __init__(
        self,
        *,
        max_tokens: int,
        epsilon: float = 0.2,
        advantage: AdvantageEstimator | None = None,
        **options: Any,
    ) -> None:
        if max_tokens < 1:
            raise ValueError(f"max_tokens={max_tokens}: must be 1 or more, the response limit say")
        advantage = GroupCentered() if advantage is None else advantage
        super().__init__(epsilon=epsilon, advantage=advantage, **options)
        self.max_tokens = max_tokens

    def aggregation_BT(
        self, mask_BT: Tensor, *, num_rows: float, num_tokens: float, dtype: torch.dtype
    ) -> Tensor:
        """Return 1 / (num_rows * max_tokens)."""
        return per_budget_BT(mask_BT, num_rows=num_rows, max_tokens=self.max_tokens, dtype=dtype)
