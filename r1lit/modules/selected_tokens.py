"""Tokens that an objective treats apart, and the covariance by which it chooses them.

B rows (responses)   T response tokens   N tokens of an iteration that count, of all ranks
n those of this rank
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from r1lit.batches import Rollout
from r1lit.objectives import Objective
from r1lit.objectives.loss_inputs import SELECTED
from r1lit.objectives.terms import covariance_N, num_selected
from r1lit.ranks import num_ranks, of_all_ranks, own_rank
from r1lit.seeding import generator

TOP = {"top_0.2_percent": 2e-3, "top_2_percent": 2e-2, "top_20_percent": 0.2}


@torch.no_grad()
def with_selection(
    rollout: Rollout, objective: Objective, seed: int
) -> tuple[Rollout, dict[str, float]]:
    """Return the rollout with the tokens that the objective treats apart, and metrics to log.

    The metrics are means of the covariance of log-prob and advantage over all tokens that count,
    of all ranks, and over those of the highest (2505.22617, Table 1); NaN where no token counts.
    Ranks exchange every token's numbers only for an objective that selects; else the means of the
    highest come from ``metrics_by_histogram``.
    """
    mask_BT = rollout.loss_mask_BT
    values_BT = rollout.logp_old_BT, rollout.advantage_BT
    own_2n = torch.stack([value_BT[mask_BT].float() for value_BT in values_BT])
    selects = type(objective).select_tokens is not Objective.select_tokens
    if num_ranks() > 1 and not selects:
        from r1lit.modules.covariance_histogram import metrics_by_histogram

        return rollout, metrics_by_histogram(own_2n, TOP)
    ranks = [values.to(own_2n.device) for values in of_all_ranks(own_2n.cpu())]
    logp_N, advantage_N = torch.cat(ranks, 1)
    cov_N = covariance_N(logp_N, advantage_N)
    metrics = {"train/covariance/mean": float(cov_N.mean()) if len(cov_N) else math.nan}
    sorted_N = cov_N.sort(descending=True).values
    for name, share in TOP.items():
        top = sorted_N[: num_selected(share, len(cov_N))]
        metrics[f"train/covariance/{name}"] = float(top.mean()) if len(top) else math.nan
    random = generator(seed, "selected", rollout.iteration)
    selected_N = objective.select_tokens(torch.where(advantage_N == 0, -math.inf, cov_N), random)
    if selected_N is None:
        return rollout, metrics
    own_n = selected_N.split([values.shape[1] for values in ranks])[own_rank()]
    selected_BT = torch.zeros_like(mask_BT).masked_scatter(mask_BT, own_n)
    metrics["train/covariance/selected"] = float(selected_N.float().mean())
    return replace(rollout, extra_BT={**rollout.extra_BT, SELECTED: selected_BT}), metrics
