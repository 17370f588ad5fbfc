"""GRPO that also learns the environment's tokens, as if the policy had written them: a control."""

from __future__ import annotations

from dataclasses import replace

import torch

from r1lit.batches import PromptBatch, Rollout
from r1lit.modules import GRPOModule


class UnmaskedGRPO(GRPOModule):
    """`GRPOModule` without the mask on what the environment has written.

    Those tokens were not sampled, so the policy's own log-probs stand for the sampler's.
    """

    def collect(self, batch: PromptBatch) -> tuple[Rollout, dict[str, float]]:
        """Return the iteration's rollout, all of whose tokens count."""
        rollout, metrics = super().collect(batch)
        written_BT = rollout.environment_BT
        if written_BT is None:
            return rollout, metrics
        logp_BT = self.log_probs(rollout, self.policy)
        logp_BT = torch.where(written_BT, logp_BT, rollout.logp_sampler_BT)
        counts_BT = rollout.loss_mask_BT.any(-1, keepdim=True)  # of no group that is left out
        unmasked = replace(
            rollout,
            environment_BT=None,
            loss_mask_BT=rollout.loss_mask_BT | (written_BT & counts_BT),
            logp_sampler_BT=logp_BT,
            logp_old_BT=logp_BT,
        )
        return unmasked, metrics
