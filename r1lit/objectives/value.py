"""What a critic minimises: the squared error of its values, clipped around the old ones.

    B rows (responses)   T response tokens

    L = 1/(2M) sum over M tokens of max((V - R)^2, (clip(V, V_old - eps, V_old + eps) - R)^2)

The value loss of PPO's reference implementation ("Implementation Matters", 2005.12729, §3); the max
makes it pessimistic: a value that has moved by more than eps towards its return learns no more.
"""

from __future__ import annotations

import torch
from torch import Tensor

from r1lit.objectives.base import LossOutputs
from r1lit.objectives.masking import hide_padding


class ValueObjective:
    """The critic's loss.

    Worked example, eps 0.2, V_old 0, R 1: V 0.1 costs 0.81 / 2 and learns; V 0.5 costs 0.64 / 2, as
    V 0.2 does, and has no gradient; V -0.5 costs 2.25 / 2 and learns.

    Args:
        epsilon: how far a value may move in one iteration; null: not clipped.
    """

    def __init__(self, epsilon: float | None = 0.2) -> None:
        if epsilon is not None and not epsilon > 0:
            raise ValueError(f"epsilon={epsilon}: must be above 0, or null for no clip")
        self.epsilon = epsilon

    def loss(
        self,
        value_BT: Tensor,
        value_old_BT: Tensor,
        return_BT: Tensor,
        mask_BT: Tensor,
        num_tokens: float,
    ) -> LossOutputs:
        """Return the loss of some rows, their share of the minibatch's, and metrics.

        Only ``value_BT`` is differentiated. ``num_tokens`` (M) is the whole minibatch's.
        """
        value_BT, old_BT = hide_padding(value_BT, mask_BT), hide_padding(value_old_BT, mask_BT)
        target_BT = hide_padding(return_BT, mask_BT)
        error_BT = (value_BT - target_BT).square()
        worst_BT = error_BT
        if self.epsilon is not None:
            near_BT = old_BT + (value_BT - old_BT).clamp(-self.epsilon, self.epsilon)
            worst_BT = torch.maximum(error_BT, (near_BT - target_BT).square())
        clipped = (worst_BT > error_BT).sum()
        return LossOutputs(
            loss=0.5 * worst_BT.sum() / num_tokens, metrics={"value_clip_fraction": clipped}
        )
