"""Metrics of a reward model: accuracy, calibration, and a baseline by length alone.

N examples   K rows of an example (2 of a pair, chosen first; 1 of a labelled response)

Standard errors are over groups of examples that share a prompt, since those are not independent
draws: the square root of G / (G - 1) times the sum over the G groups of their summed deviations
squared, over N. With one example a group it is the usual one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torchmetrics.functional.classification import binary_auroc

NUM_BINS = 10
Report = dict[str, Any]


def pair_report(
    reward_NK: np.ndarray, length_NK: np.ndarray, groups: Sequence[str], longer_is_better: bool
) -> Report:
    """Return the metrics of a pairwise reward model on held-out pairs.

    A pair is right when the chosen response has the higher reward; a tie counts one half. Its
    predicted probability is sigma of the difference. For calibration a pair counts in both orders,
    (p, 1) and (1 - p, 0): which of the two is called chosen is an accident of the file.

    ``longer_is_better`` comes from the training pairs' lengths (``prefers_longer``); the baseline
    prefers by it alone, with one half where lengths are equal.
    """
    difference_N = reward_NK[:, 0] - reward_NK[:, 1]
    right_N = _wins(difference_N)
    longer_N = (length_NK[:, 0] - length_NK[:, 1]).astype(float)
    baseline_N = _wins(longer_N if longer_is_better else -longer_N)
    p_N = 1 / (1 + np.exp(-difference_N))
    error, table = calibration(
        np.concatenate([p_N, 1 - p_N]),
        np.concatenate([np.ones(len(p_N)), np.zeros(len(p_N))]),
    )
    report: Report = {
        "num_examples": len(right_N),
        "accuracy": _mean(right_N),
        "accuracy_stderr": grouped_stderr(right_N, groups),
        "calibration_error": error,
        "length_baseline_accuracy": _mean(baseline_N),
        "above_length_baseline": _mean(right_N - baseline_N),
        "above_length_baseline_stderr": grouped_stderr(right_N - baseline_N, groups),
        "length_baseline": "longer" if longer_is_better else "shorter",
        "length_correlation": correlation(difference_N, longer_N),
        "reward_chosen": _mean(reward_NK[:, 0]),
        "reward_rejected": _mean(reward_NK[:, 1]),
        "reliability": table,
    }
    for name, chosen in (("longer", longer_N > 0), ("shorter", longer_N < 0)):
        report[f"num_chosen_{name}"] = int(chosen.sum())
        report[f"accuracy_chosen_{name}"] = _mean(right_N[chosen])
    return report


def label_report(
    reward_NK: np.ndarray,
    length_NK: np.ndarray,
    label_N: np.ndarray,
    groups: Sequence[str],
    longer_is_safer: bool,
) -> Report:
    """Return the metrics of a point-wise reward model on held-out labelled responses.

    A response is right when it is safe and its reward (the log-odds of safe) above 0, or neither.
    AUROC is the chance that a safe response has a higher reward than an unsafe one; its standard
    error is that of Hanley and McNeil (1982). The baseline ranks by length alone.
    """
    reward_N, length_N = reward_NK[:, 0], length_NK[:, 0].astype(float)
    safe_N = label_N > 0.5
    right_N = np.where(reward_N == 0, 0.5, ((reward_N > 0) == safe_N).astype(float))
    error, table = calibration(1 / (1 + np.exp(-reward_N)), safe_N.astype(float))
    area = auroc(reward_N, safe_N)
    return {
        "num_examples": len(right_N),
        "num_safe": int(safe_N.sum()),
        "accuracy": _mean(right_N),
        "accuracy_stderr": grouped_stderr(right_N, groups),
        "majority_accuracy": max(_mean(safe_N), 1 - _mean(safe_N)),
        "auroc": area,
        "auroc_stderr": auroc_stderr(area, int(safe_N.sum()), int((~safe_N).sum())),
        "calibration_error": error,
        "length_baseline_auroc": auroc(length_N if longer_is_safer else -length_N, safe_N),
        "length_baseline": "longer" if longer_is_safer else "shorter",
        "length_correlation": correlation(reward_N, length_N),
        "reliability": table,
    }


def prefers_longer(lengths: Sequence[Sequence[int]], labels: Sequence[float]) -> bool:
    """Return whether longer is better in the training examples.

    Of pairs, a logistic regression on the difference in length without intercept (the order of a
    pair is an accident) decides by the sign of its slope, which is that of the summed differences
    of the preferred less the other, the gradient of its likelihood at 0. Of labelled responses,
    whether the safe are longer than the unsafe in the mean.

    >>> prefers_longer([(3, 9), (8, 7)], [1.0, 1.0])
    False
    """
    if lengths and len(lengths[0]) == 2:
        return sum(chosen - rejected for chosen, rejected in lengths) > 0
    safe = [own[0] for own, label in zip(lengths, labels, strict=True) if label > 0.5]
    unsafe = [own[0] for own, label in zip(lengths, labels, strict=True) if label <= 0.5]
    return bool(safe and unsafe) and sum(safe) / len(safe) > sum(unsafe) / len(unsafe)


def calibration(
    probability_N: np.ndarray, outcome_N: np.ndarray, num_bins: int = NUM_BINS
) -> tuple[float, list[Report]]:
    """Return the expected calibration error and the reliability table (Guo et al. 1706.04599).

    ECE = sum over bins of n_b / N |mean outcome - mean probability|, over bins of equal width; the
    last holds 1. Empty bins are in the table with no means.

    >>> error, _ = calibration(np.array([0.25, 0.25]), np.array([0.0, 1.0]))
    >>> error
    0.25
    """
    bin_N = np.minimum((probability_N * num_bins).astype(int), num_bins - 1)
    error, table = 0.0, []
    for b in range(num_bins):
        own = bin_N == b
        count = int(own.sum())
        predicted, observed = _mean(probability_N[own]), _mean(outcome_N[own])
        if count:
            error += count / len(probability_N) * abs(observed - predicted)
        table.append(
            {
                "from": b / num_bins,
                "to": (b + 1) / num_bins,
                "count": count,
                "predicted": predicted if count else None,
                "observed": observed if count else None,
            }
        )
    return error, table


def grouped_stderr(value_N: np.ndarray, groups: Sequence[str]) -> float:
    """Return the standard error of the mean over examples in groups; NaN of fewer than two groups.

    >>> round(grouped_stderr(np.array([0.0, 1.0]), ["a", "b"]), 3)
    0.5
    """
    deviation_N = value_N - value_N.mean() if len(value_N) else value_N
    sums: dict[str, float] = {}
    for group, deviation in zip(groups, deviation_N, strict=True):
        sums[group] = sums.get(group, 0.0) + float(deviation)
    if len(sums) < 2:
        return math.nan
    squares = sum(total**2 for total in sums.values())
    return math.sqrt(len(sums) / (len(sums) - 1) * squares) / len(value_N)


def auroc(score_N: np.ndarray, positive_N: np.ndarray) -> float:
    """Return the area under the ROC curve; NaN where one class is missing."""
    if positive_N.all() or not positive_N.any():
        return math.nan
    # torchmetrics puts scores outside [0, 1] through a sigmoid, where large ones become equal
    rank_N = np.unique(score_N, return_inverse=True)[1] / len(score_N)
    return float(binary_auroc(torch.from_numpy(rank_N), torch.from_numpy(positive_N.astype(int))))


def auroc_stderr(area: float, num_positive: int, num_negative: int) -> float:
    """Return the standard error of an AUROC (Hanley and McNeil 1982, Eq. 1)."""
    if not (num_positive and num_negative):
        return math.nan
    both_positive = area / (2 - area)
    both_negative = 2 * area**2 / (1 + area)
    variance = (
        area * (1 - area)
        + (num_positive - 1) * (both_positive - area**2)
        + (num_negative - 1) * (both_negative - area**2)
    ) / (num_positive * num_negative)
    return math.sqrt(max(0.0, variance))


def correlation(a_N: np.ndarray, b_N: np.ndarray) -> float:
    """Return Pearson's correlation; NaN where one side does not vary."""
    if len(a_N) < 2 or not (np.ptp(a_N) > 0 and np.ptp(b_N) > 0):
        return math.nan
    return float(np.corrcoef(a_N, b_N)[0, 1])


def _wins(difference_N: np.ndarray) -> np.ndarray:
    return np.where(difference_N == 0, 0.5, (difference_N > 0).astype(float))


def _mean(value_N: np.ndarray) -> float:
    return float(value_N.mean()) if len(value_N) else math.nan
