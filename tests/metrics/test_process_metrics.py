"""F1 of first errors by hand."""

from __future__ import annotations

import math

import pytest

from r1lit.metrics.reward_models import first_below, first_error_f1, guessing_f1, step_report

# two solutions with a first error at 1, one of which is found; three without, two of them kept
LABELS = [[1, 0], [1, 0], [1, 1], [1, 1, 1], [1]]
SCORES = [[0.9, 0.2], [0.4, 0.1], [0.8, 0.7], [0.9, 0.3, 0.9], [0.6]]


def test_f1_is_the_harmonic_mean_of_both_accuracies():
    found = first_error_f1(SCORES, LABELS)
    assert found["error_accuracy"] == 1 / 2  # the second is predicted at 0, too early
    assert found["correct_accuracy"] == pytest.approx(2 / 3)
    assert found["f1"] == pytest.approx(2 * (1 / 2) * (2 / 3) / (1 / 2 + 2 / 3))
    assert first_error_f1([[0.9, 0.9]], [[1, 0]])["error_accuracy"] == 0.0
    assert math.isnan(first_error_f1([[0.9]], [[1]])["f1"])
    assert first_error_f1([[0.9, 0.9], [0.1]], [[1, 0], [1]])["f1"] == 0.0
    assert first_below([0.5, 0.4], 0.5) == 1  # a half is right


def test_a_report_by_hand():
    report = step_report(SCORES, LABELS, ["a", "a", "b", "c", "d"])
    assert report["num_steps"] == 10 and report["num_with_errors"] == 2
    assert report["accuracy"] == pytest.approx(8 / 10)  # 0.4 and 0.3 are predicted wrong
    assert report["majority_accuracy"] == pytest.approx(8 / 10)
    # of 8 x 2 pairs of a right and a wrong step none is in the wrong order
    assert report["auroc"] == pytest.approx(1.0)
    # at a threshold of 0.3 both wrong steps are found, and no right one is below it
    assert report["best_f1"] == pytest.approx(1.0) and report["f1"] < 0.6


def test_guessing_by_hand():
    # first errors at 0 and 1, two right steps kept: found (p + (1-p)p)/2, kept (1-p)^2
    p = [n / 100 for n in range(1, 100)]
    found, kept = [(x + (1 - x) * x) / 2 for x in p], [(1 - x) ** 2 for x in p]
    best = max(2 * a * b / (a + b) for a, b in zip(found, kept, strict=True))
    assert guessing_f1([[0], [1, 0], [1, 1]]) == pytest.approx(best)
    assert math.isnan(guessing_f1([[1], [1, 1]])) and math.isnan(guessing_f1([[0]]))
