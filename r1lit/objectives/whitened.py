"""Advantages scaled over an iteration.

B rows (responses)   T response tokens
"""

from __future__ import annotations

import math

from torch import Tensor

from r1lit.batches import Rollout
from r1lit.objectives.advantages import AdvantageEstimator, GroupNormalized
from r1lit.objectives.terms import divisor, hide_padding
from r1lit.ranks import mean_over_ranks


class Whitened(AdvantageEstimator):
    """Another estimator's advantages, of mean 0 and standard deviation 1 over an iteration.

    Over the tokens that count on all ranks, as in REINFORCE++ (2501.03262, §3.2) and PPO's usual
    form.

    Args:
        estimator: whose advantages; ``GroupNormalized`` if left out.
    """

    def __init__(self, estimator: AdvantageEstimator | None = None) -> None:
        self.estimator = estimator or GroupNormalized()
        self.min_group_size = self.estimator.min_group_size
        self.reads = self.estimator.reads

    @property
    def unscaled(self) -> AdvantageEstimator:
        """The estimator whose advantages are scaled."""
        return self.estimator.unscaled

    def estimate(self, rollout: Rollout) -> Tensor:
        """Return the scaled advantages, 0 at tokens that do not count."""
        mask_BT = rollout.loss_mask_BT
        advantage_BT = self.estimator.estimate(rollout)
        num_tokens = divisor(mean_over_ranks(mask_BT.sum()))
        mean = mean_over_ranks(hide_padding(advantage_BT, mask_BT).sum()) / num_tokens
        centred_BT = hide_padding(advantage_BT - mean, mask_BT)
        variance = mean_over_ranks(centred_BT.square().sum()) / num_tokens
        return centred_BT / (math.sqrt(variance) + 1e-8)
