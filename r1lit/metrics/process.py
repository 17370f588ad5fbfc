"""Metrics of a process reward model: steps, and the first wrong step of a solution.

N solutions   K labelled steps of all of them
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from r1lit.metrics.reward_models import Report, auroc, calibration, grouped_stderr

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
