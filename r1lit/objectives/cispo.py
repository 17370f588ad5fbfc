"""CISPO: the ratio is clipped and weighs a log-prob, so that no token loses its gradient."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from r1lit.objectives.loss_inputs import LossInputs
from r1lit.objectives.objective import Objective, check_clip
from r1lit.objectives.terms import hide_padding, hide_zero_BT, per_token_BT, token_log_ratio_BT


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
        **options: of ``Objective``: beta, kl, advantage (GroupNormalized where left out).
    """

    log_ratio_BT = staticmethod(token_log_ratio_BT)
    aggregation_BT = staticmethod(per_token_BT)

    def __init__(
        self, *, epsilon_high: float = 4.0, epsilon_low: float | None = None, **options: Any
    ) -> None:
        super().__init__(**options)
        check_clip("epsilon_high", epsilon_high)
        if epsilon_low is not None:
            check_clip("epsilon_low", epsilon_low)
        self.epsilon_high = epsilon_high
        self.epsilon_low = epsilon_low

    @property
    def log_bounds(self) -> tuple[float, float]:
        """The logs of the smallest and the largest weight."""
        low = 1.0 if self.epsilon_low is None else min(self.epsilon_low, 1.0)
        return -math.inf if low == 1 else math.log1p(-low), math.log1p(self.epsilon_high)

    def surrogate_BT(self, inputs: LossInputs) -> Tensor:
        """Return sg(clip(rho)) A log pi."""
        log_ratio_BT, advantage_BT = self.log_ratio_and_advantage(inputs)
        log_ratio_BT = hide_zero_BT(log_ratio_BT.detach(), advantage_BT)
        weight_BT = log_ratio_BT.clamp(*self.log_bounds).exp() * advantage_BT
        return weight_BT * hide_zero_BT(hide_padding(inputs.logp_BT, inputs.mask_BT), weight_BT)

    def is_clipped_BT(self, inputs: LossInputs) -> Tensor:
        """Return where the weight is clipped and the advantage is not 0, of either sign."""
        log_ratio_BT, advantage_BT = self.log_ratio_and_advantage(inputs)
        low, high = self.log_bounds
        return ((log_ratio_BT < low) | (log_ratio_BT > high)) & (advantage_BT != 0)
