"""Tokens of low entropy are left out of the surrogate."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from r1lit.batches import Rollout
from r1lit.objectives.terms import num_selected
from r1lit.ranks import of_all_ranks
from r1lit.steps.base import Run, Step


class TopEntropy(Step):
    """Weighs the surrogate of all tokens but those of the highest entropies 0.

    Those are a share of the tokens that count, of all ranks, one at least; equals of the last of
    them stay too. Its entropy is logged. The paper (Wang et al. 2506.01939) takes the entropies of
    each batch at the policy as it is then; here they are those of the policy before the
    iteration's first update, so that no split into micro-batches matters.

    Args:
        share: of an iteration's tokens; the paper's is 0.2.
    """

    reads = ("loss_mask_BT", "weight_BT")
    writes = ("weight_BT",)

    def __init__(self, share: float = 0.2) -> None:
        if not 0 < share < 1:
            raise ValueError(f"share: {share} is not above 0 and below 1; 0.2, say")
        self.share = share

    def check(self, run: Run) -> None:
        """Refuse an objective with one surrogate per response."""
        if run.objective.is_per_response:
            raise ValueError(
                f"model.steps: TopEntropy, but {type(run.objective).__name__} has one surrogate per"
                " response, so no token's can be left out; take GSPOToken, GRPO or DAPO"
            )

    @torch.no_grad()
    def __call__(self, rollout: Rollout, run: Run) -> tuple[Rollout, dict[str, float]]:
        """Return the rollout with weights that are 0 at tokens of low entropy."""
        mask_BT = rollout.loss_mask_BT
        entropy_BT = run.entropies(rollout)
        entropy_N = torch.cat(of_all_ranks(entropy_BT[mask_BT].float().cpu()))
        least = math.nan
        if len(entropy_N):
            least = float(entropy_N.topk(num_selected(self.share, len(entropy_N))).values[-1])
        weight_BT = (mask_BT & (entropy_BT.float() >= least)).to(rollout.logp_old_BT.dtype)
        if rollout.weight_BT is not None:
            weight_BT = torch.where(weight_BT > 0, rollout.weight_BT, 0.0)
        return replace(rollout, weight_BT=weight_BT), {"train/entropy_least": least}
