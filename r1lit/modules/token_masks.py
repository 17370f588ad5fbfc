"""Tokens that an iteration leaves out: of truncated responses, and of low entropy.

B rows (responses)   T response tokens   N tokens of an iteration that count, of all ranks
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from r1lit.batches import Rollout
from r1lit.objectives.terms import num_selected
from r1lit.ranks import of_all_ranks


def without_truncated(rollout: Rollout) -> Rollout:
    """Return the rollout with responses that were cut at the limit out of the loss."""
    finished = [response.finished for response in rollout.responses]
    finished_B1 = torch.tensor(finished, device=rollout.loss_mask_BT.device)[:, None]
    return replace(rollout, loss_mask_BT=rollout.loss_mask_BT & finished_B1)


@torch.no_grad()
def with_top_entropy(
    rollout: Rollout, entropy_BT: Tensor, share: float
) -> tuple[Rollout, dict[str, float]]:
    """Return the rollout with the surrogate of all but the highest entropies weighed 0.

    Those are a share of the tokens that count, of all ranks, one at least; equals of the last of
    them stay too. Also returned is its entropy, to log. The paper (2506.01939) takes the
    entropies of each batch at the policy as it is then; here they are those of the policy before
    the iteration's first update, so that no split into micro-batches matters.
    """
    mask_BT = rollout.loss_mask_BT
    entropy_N = torch.cat(of_all_ranks(entropy_BT[mask_BT].float().cpu()))
    least = math.nan
    if len(entropy_N):
        least = float(entropy_N.topk(num_selected(share, len(entropy_N))).values[-1])
    weight_BT = (mask_BT & (entropy_BT.float() >= least)).to(rollout.logp_old_BT.dtype)
    if rollout.correction_BT is not None:
        weight_BT = torch.where(weight_BT > 0, rollout.correction_BT, 0.0)
    return replace(rollout, correction_BT=weight_BT), {"train/entropy_least": least}
