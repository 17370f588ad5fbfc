"""Metrics of reward models: accuracy, calibration, a baseline by length alone; first wrong steps.

N examples   K rows of an example (2 of a pair, chosen first; 1 of a labelled response)

In process reward models N counts solutions and K the labelled steps of all of them.

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
    whether the safe are longer than the unsafe on average.

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


# process reward models: steps, and the first wrong step of a solution

Steps = Sequence[Sequence[float]]


def first_below(numbers: Sequence[float], threshold: float) -> int:
    """Return the index of the first number below a threshold, and -1 if there is none.

    >>> first_below([0.9, 0.2, 0.1], 0.5)
    1
    """
    return next((i for i, number in enumerate(numbers) if number < threshold), -1)


def first_error_f1(score_NK: Steps, label_NK: Steps, threshold: float = 0.5) -> Report:
    """Return how well first errors are found, as ProcessBench reports it (2412.06559, §3.3).

    A solution's predicted first error is its first step scored below the threshold. It counts as
    found if that is the first step labelled wrong (below 0.5), and a solution without a wrong step
    is right if no step is predicted wrong. F1 is the harmonic mean of the two accuracies, 0 where
    one is.

    >>> first_error_f1([[0.9, 0.1], [0.9, 0.4], [0.8]], [[1, 0], [1, 1], [1]])["f1"]
    0.6666666666666666
    """
    true = [first_below(label, 0.5) for label in label_NK]
    right = np.array([first_below(s, threshold) for s in score_NK]) == np.array(true)
    wrong = np.array(true) >= 0
    error, correct = (
        float(right[own].mean()) if own.any() else math.nan for own in (wrong, ~wrong)
    )
    total = error + correct
    return {
        "error_accuracy": error,
        "correct_accuracy": correct,
        "f1": 2 * error * correct / total if total else total,
    }


def guessing_f1(label_NK: Steps) -> float:
    """Return the expected F1 of guessing: each step is called wrong by chance, at the best rate.

    At rate p a first error at step k is found with (1 − p)^k p, and n right steps are kept with
    (1 − p)^n. The F1 is of both expected accuracies; NaN where there are no wrong, or no right,
    solutions.

    >>> round(guessing_f1([[0], [1]]), 9)  # p and 1 - p: best at a half
    0.5
    """
    rate_M = np.linspace(0.01, 0.99, 99)
    first_N = [first_below(label, 0.5) for label in label_NK]
    found = [(1 - rate_M) ** k * rate_M for k in first_N if k >= 0]
    kept = [(1 - rate_M) ** len(own) for own, k in zip(label_NK, first_N, strict=True) if k < 0]
    if not found or not kept:
        return math.nan
    error_M, correct_M = np.mean(found, axis=0), np.mean(kept, axis=0)
    return float((2 * error_M * correct_M / (error_M + correct_M)).max())


def step_report(
    score_NK: Steps, label_NK: Steps, groups: Sequence[str], threshold: float = 0.5
) -> Report:
    """Return the metrics of a process reward model on held-out solutions.

    Steps count as right from a label of 0.5 on, and as predicted right from a score of the
    threshold on. ``best_f1`` is the F1 at the best threshold for these very solutions: more than
    any threshold chosen elsewhere will give; ``guessing_f1`` is what no model is needed for. The
    standard error is over groups (problems).
    """
    label_K = np.array([x for own in label_NK for x in own]) >= 0.5
    score_K = np.array([x for own in score_NK for x in own])
    right_K = ((score_K >= threshold) == label_K).astype(float)
    group_K = [g for g, own in zip(groups, label_NK, strict=True) for _ in own]
    error, table = calibration(score_K, label_K.astype(float))
    candidates = np.unique(np.quantile(score_K, np.linspace(0, 1, 101)))
    found = [first_error_f1(score_NK, label_NK, float(t))["f1"] for t in candidates]
    return {
        "num_examples": len(label_NK),
        "num_with_errors": sum(first_below(own, 0.5) >= 0 for own in label_NK),
        "num_steps": len(label_K),
        "accuracy": float(right_K.mean()),
        "accuracy_stderr": grouped_stderr(right_K, group_K),
        "majority_accuracy": max(float(label_K.mean()), 1 - float(label_K.mean())),
        "auroc": auroc(score_K, label_K),
        "calibration_error": error,
        **first_error_f1(score_NK, label_NK, threshold),
        "best_f1": max(found),
        "guessing_f1": guessing_f1(label_NK),
        "reliability": table,
    }
