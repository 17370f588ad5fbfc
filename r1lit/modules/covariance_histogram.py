"""The covariance's means over the tokens of all ranks, which exchange a histogram alone.

N tokens of an iteration that count, of all ranks   n those of this rank   H bins
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from r1lit.objectives.terms import num_selected
from r1lit.ranks import of_all_ranks

NUM_BINS = 4096


def metrics_by_histogram(own_2n: Tensor, top: Mapping[str, float]) -> dict[str, float]:
    """Return means of the covariance: over all tokens, and over the highest shares of them.

    They are exact but for the tokens of the bin at which a share ends, which count by that bin's
    mean. All ranks call it.

    Args:
        own_2n: this rank's log-probs and advantages.
        top: the logged name of each share.
    """
    sums = [own_2n.shape[1], *own_2n.double().sum(1).tolist()]
    num, *totals = (sum(values) for values in zip(*of_all_ranks(sums), strict=True))
    if not num:
        return dict.fromkeys(("train/covariance/mean", *map("train/covariance/{}".format, top)),
                             math.nan)  # fmt: skip
    logp_n, advantage_n = (own_2n.T.double() - torch.tensor(totals).to(own_2n) / num).T
    cov_n = (logp_n * advantage_n).cpu()
    ends = [(float(cov_n.min()), float(cov_n.max()))] if len(cov_n) else []
    ends = [end for of_rank in of_all_ranks(ends) for end in of_rank]
    low, high = min(low for low, _ in ends), max(high for _, high in ends)
    bin_n = ((cov_n - low) / max(high - low, 1e-30) * NUM_BINS).long().clamp(0, NUM_BINS - 1)
    own = torch.zeros(2, NUM_BINS, dtype=torch.float64)
    own[0].index_add_(0, bin_n, torch.ones_like(cov_n))
    own[1].index_add_(0, bin_n, cov_n)
    count_H, sum_H = torch.stack(of_all_ranks(own)).sum(0).flip(-1)  # the highest bin first
    metrics = {"train/covariance/mean": float(sum_H.sum()) / num}
    for name, share in top.items():
        wanted = num_selected(share, int(num))
        before_H = count_H.cumsum(0) - count_H
        taken_H = (wanted - before_H).clamp(min=0).minimum(count_H)
        mean_H = sum_H / count_H.clamp(min=1)
        metrics[f"train/covariance/{name}"] = float((taken_H * mean_H).sum()) / wanted
    return metrics
