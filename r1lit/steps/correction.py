"""Tokens weighed for a sampler that differs from the trainer."""

from __future__ import annotations

from dataclasses import replace

from r1lit.batches import Rollout
from r1lit.objectives.importance_weights import ImportanceWeights
from r1lit.objectives.mismatch import Mismatch
from r1lit.steps.base import Run, Step


class Correction(Step):
    """Has the trainer compute the old log-probs, and weighs tokens by what the sampler's differ.

    The objective's ratio then starts from the trainer's own. Without this step the sampler's are
    trusted. Logged are the differences, of all tokens (``train/mismatch/*``).

    Args:
        weighting: how a ratio of trainer to sampler becomes a token's weight.
    """

    reads = ("logp_sampler_BT", "loss_mask_BT")
    writes = ("logp_old_BT", "weight_BT")

    def __init__(self, weighting: ImportanceWeights) -> None:
        self.weighting = weighting

    def __call__(self, rollout: Rollout, run: Run) -> tuple[Rollout, dict[str, float]]:
        """Return the rollout with old log-probs of the trainer, and weights."""
        sampled = rollout.logp_sampler_BT, rollout.loss_mask_BT
        logp_old_BT = run.log_probs(rollout, run.policy)
        mismatch = Mismatch()
        mismatch.add(logp_old_BT, *sampled)
        weight_BT = self.weighting.weight_BT(logp_old_BT, *sampled)
        prepared = replace(rollout, logp_old_BT=logp_old_BT, weight_BT=weight_BT)
        return prepared, mismatch.metrics(same_weights=run.is_fresh)
