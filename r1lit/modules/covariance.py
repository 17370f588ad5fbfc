"""Which tokens an objective treats apart, and how log-prob and advantage vary together.

B rows (responses)   T response tokens   N tokens of an iteration that count, of all ranks
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor

from r1lit.batches import Rollout
from r1lit.objectives import Objective
from r1lit.objectives.terms import covariance_N, num_selected
from r1lit.seeding import generator

TOP = {"top_0.2_percent": 2e-3, "top_2_percent": 2e-2, "top_20_percent": 0.2}


@torch.no_grad()
def with_selection(
    rollout: Rollout, objective: Objective, seed: int
) -> tuple[Rollout, dict[str, float]]:
    """Return the rollout with the tokens that the objective treats apart, and metrics to log.

    The metrics are means of the covariance of log-prob and advantage over all tokens that count,
    of all ranks, and over those of the highest (2505.22617, Table 1); NaN where no token counts.
    """
    mask_BT = rollout.loss_mask_BT
    values_BT = rollout.logp_old_BT, rollout.advantage_BT
    own_2N = torch.stack([value_BT[mask_BT].float() for value_BT in values_BT])
    ranks = _of_all_ranks(own_2N)
    logp_N, advantage_N = torch.cat(ranks, 1)
    cov_N = covariance_N(logp_N, advantage_N)
    metrics = {"train/covariance/mean": float(cov_N.mean()) if len(cov_N) else math.nan}
    sorted_N = cov_N.sort(descending=True).values
    for name, share in TOP.items():
        top = sorted_N[: num_selected(share, len(cov_N))]
        metrics[f"train/covariance/{name}"] = float(top.mean()) if len(top) else math.nan
    random = generator(seed, "selected", rollout.iteration)
    selected_N = objective.select_N(torch.where(advantage_N == 0, -math.inf, cov_N), random)
    if selected_N is None:
        return rollout, metrics
    rank = dist.get_rank() if len(ranks) > 1 else 0
    own_N = selected_N.split([values.shape[1] for values in ranks])[rank]
    selected_BT = torch.zeros_like(mask_BT).masked_scatter(mask_BT, own_N)
    metrics["train/covariance/selected"] = float(selected_N.float().mean())
    return replace(rollout, is_selected_BT=selected_BT), metrics


def _of_all_ranks(own_2N: Tensor) -> list[Tensor]:
    """Return the tensors of all ranks, in their order, on this rank's device."""
    if not (dist.is_available() and dist.is_initialized()):
        return [own_2N]
    ranks: list[Tensor] = [own_2N] * dist.get_world_size()
    dist.all_gather_object(ranks, own_2N.cpu())
    return [values.to(own_2N.device) for values in ranks]
