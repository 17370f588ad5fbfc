"""CISPO: clip the importance weight and keep every token's gradient.

B rows (responses), T response tokens.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from r1lit.objectives.advantages import AdvantageEstimator
from r1lit.objectives.base import Objective
from r1lit.objectives.kl import KLName
from r1lit.objectives.masking import hide_padding
from r1lit.objectives.ratios import token_log_ratio_BT
from r1lit.objectives.weights import per_token_BT


class CISPO(Objective):
    """Clipped IS-weight Policy Optimization (MiniMax-M1 2506.13585, Eq. 4 and 5).

    J = 1/(sum_i |o_i|) sum_i sum_t sg(w_it) A_i log pi_theta(o_it),
    w_it = clip(rho_it, 1 - eps_low, 1 + eps_high), sg the stop-gradient, A_i group-normalised,
    no KL term.

    PPO's clip drops the gradient of a token that moved too far; rare words that turn a thought
    ("wait") move first. Here the clip bounds a constant factor, so no token is ever dropped. J is a
    vehicle for its gradient, rho A grad log pi: its *value* holds log pi and is not comparable with
    that of the other objectives.

    Left open, and chosen here: the paper sets no lower bound (epsilon_low None: weights in
    [0, 1 + epsilon_high]) and tunes epsilon_high without printing it. The default 4.0, a cap of 5,
    is ours. Tokens are counted over the minibatch, not over the group, as in ``DAPO``.

    Degenerates: on policy, or where nothing is clipped, the gradient is that of ``DAPO``.

    Args:
        epsilon_high: weights are clipped from above at 1 + epsilon_high.
        epsilon_low: weights are clipped from below at 1 - epsilon_low; None leaves them free.
        beta: weight of the KL penalty; the paper has none.
        kl: the estimator of the penalty.
        advantage: GroupNormalized where left out.
    """

    def __init__(
        self,
        *,
        epsilon_high: float = 4.0,
        epsilon_low: float | None = None,
        beta: float = 0.0,
        kl: KLName = "k3",
        advantage: AdvantageEstimator | None = None,
    ) -> None:
        super().__init__(beta=beta, kl=kl, advantage=advantage)
        if not epsilon_high >= 0:
            raise ValueError(f"epsilon_high={epsilon_high}: a clip must be 0 or above")
        if epsilon_low is not None and not epsilon_low >= 0:
            raise ValueError(f"epsilon_low={epsilon_low}: a clip must be 0 or above, or null")
        self.epsilon_high = epsilon_high
        self.epsilon_low = epsilon_low

    @property
    def log_bounds(self) -> tuple[float, float]:
        """The logs of the smallest and the largest weight."""
        low = 1.0 if self.epsilon_low is None else min(self.epsilon_low, 1.0)
        return -math.inf if low == 1 else math.log1p(-low), math.log1p(self.epsilon_high)

    def log_ratio_BT(self, *, logp_BT: Tensor, logp_old_BT: Tensor, mask_BT: Tensor) -> Tensor:
        """Return the log-ratio of each token, not clipped."""
        return token_log_ratio_BT(logp_BT, logp_old_BT, mask_BT)

    def surrogate_BT(
        self, *, logp_BT: Tensor, logp_old_BT: Tensor, advantage_B: Tensor, mask_BT: Tensor
    ) -> Tensor:
        """Return sg(clip(rho)) A log pi."""
        log_ratio_BT = self.log_ratio_BT(logp_BT=logp_BT, logp_old_BT=logp_old_BT, mask_BT=mask_BT)
        low, high = self.log_bounds
        is_weight_BT = log_ratio_BT.detach().clamp(low, high).exp()
        return is_weight_BT * advantage_B[:, None] * hide_padding(logp_BT, mask_BT)

    def clip_acts_BT(
        self, *, logp_BT: Tensor, logp_old_BT: Tensor, advantage_B: Tensor, mask_BT: Tensor
    ) -> Tensor:
        """Return where the weight is clipped and the advantage is not 0, whatever its sign."""
        log_ratio_BT = self.log_ratio_BT(logp_BT=logp_BT, logp_old_BT=logp_old_BT, mask_BT=mask_BT)
        low, high = self.log_bounds
        clipped_BT = (log_ratio_BT < low) | (log_ratio_BT > high)
        return clipped_BT & (advantage_B[:, None] != 0) & mask_BT

    def token_weight_BT(
        self,
        mask_BT: Tensor,
        *,
        num_rows: float,
        num_tokens: float,
        dtype: torch.dtype = torch.float32,
    ) -> Tensor:
        """Return 1 / num_tokens."""
        return per_token_BT(mask_BT, num_tokens=num_tokens, dtype=dtype)
