"""Reports on reward models, against numbers worked out by hand and against definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from r1lit.metrics.reward_models import (
    auroc,
    auroc_stderr,
    calibration,
    correlation,
    first_below,
    first_error_f1,
    grouped_stderr,
    guessing_f1,
    label_report,
    pair_report,
    prefers_longer,
    step_report,
)

REWARD_NK = np.array([[2.0, 1.0], [0.0, 1.0], [3.0, 3.0], [5.0, 1.0]])
LENGTH_NK = np.array([[9, 5], [4, 8], [6, 6], [3, 7]])
GROUPS = ["a", "a", "b", "c"]


def test_pairs_by_hand():
    report = pair_report(REWARD_NK, LENGTH_NK, GROUPS, longer_is_better=False)
    assert report["accuracy"] == pytest.approx(2.5 / 4)  # right, wrong, a tie, right
    assert report["length_baseline_accuracy"] == pytest.approx(2.5 / 4)  # wrong, right, tie, right
    assert report["above_length_baseline"] == pytest.approx(0.0)
    assert report["length_baseline"] == "shorter"
    assert (report["num_chosen_longer"], report["num_chosen_shorter"]) == (1, 2)
    assert (report["accuracy_chosen_longer"], report["accuracy_chosen_shorter"]) == (1.0, 0.5)
    assert (report["reward_chosen"], report["reward_rejected"]) == (2.5, 1.5)
    # groups: a deviates by 0.375 - 0.625, b by -0.125, c by 0.375; G = 3, N = 4
    squares = 0.25**2 + 0.125**2 + 0.375**2
    assert report["accuracy_stderr"] == pytest.approx(math.sqrt(3 / 2 * squares) / 4)


def test_the_other_baseline_is_the_complement_but_for_ties():
    longer = pair_report(REWARD_NK, LENGTH_NK, GROUPS, longer_is_better=True)
    shorter = pair_report(REWARD_NK, LENGTH_NK, GROUPS, longer_is_better=False)
    assert longer["length_baseline_accuracy"] == 1 - shorter["length_baseline_accuracy"]
    assert longer["accuracy"] == shorter["accuracy"]


def test_calibration_of_pairs_does_not_depend_on_which_is_called_chosen():
    """A model of honest doubt: 0.75 sure and right three times in four."""
    log_odds = math.log(3)
    right = np.array([[log_odds, 0.0]] * 3 + [[0.0, log_odds]])
    report = pair_report(right, np.ones((4, 2)), "abcd", longer_is_better=True)
    assert report["accuracy"] == 0.75
    assert report["calibration_error"] == pytest.approx(0.0, abs=1e-12)
    told = {row["predicted"]: row["observed"] for row in report["reliability"] if row["count"]}
    assert told == pytest.approx({0.25: 0.25, 0.75: 0.75})
    boasting = pair_report(right * 100, np.ones((4, 2)), "abcd", longer_is_better=True)
    assert boasting["calibration_error"] == pytest.approx(0.25)


def test_labels_by_hand():
    reward_NK = np.array([[2.0], [-1.0], [0.5], [-3.0]])
    label_N = np.array([1.0, 1.0, 0.0, 0.0])
    length_NK = np.array([[4], [3], [2], [1]])
    report = label_report(reward_NK, length_NK, label_N, "abcd", longer_is_safer=True)
    assert report["accuracy"] == 0.5 and report["majority_accuracy"] == 0.5
    assert report["auroc"] == pytest.approx(3 / 4)  # of four pairs one is in the wrong order
    assert report["length_baseline_auroc"] == 1.0 and report["length_baseline"] == "longer"
    assert report["num_safe"] == 2
    turned = label_report(reward_NK, length_NK, label_N, "abcd", longer_is_safer=False)
    assert turned["length_baseline_auroc"] == 0.0


def test_auroc_is_the_chance_of_the_right_order_ties_and_large_scores_included():
    generator = np.random.default_rng(0)
    positive_N = generator.random(60) < 0.4
    for score_N in (
        generator.integers(0, 6, 60).astype(float),
        generator.normal(size=60),
        1000 + generator.normal(size=60),
    ):
        apart = score_N[positive_N][:, None] - score_N[~positive_N][None, :]
        chance = np.where(apart == 0, 0.5, apart > 0).mean()
        assert auroc(score_N, positive_N) == pytest.approx(chance)
    assert math.isnan(auroc(np.array([1.0, 2.0]), np.array([True, True])))


def test_standard_error_of_an_auroc_is_hanley_and_mcneil_s():
    # Q1 = 0.8 / 1.2, Q2 = 1.28 / 1.8; (0.16 + 4 (Q1 - 0.64) + 9 (Q2 - 0.64)) / 50
    variance = (0.16 + 4 * (0.8 / 1.2 - 0.64) + 9 * (1.28 / 1.8 - 0.64)) / 50
    assert auroc_stderr(0.8, 5, 10) == pytest.approx(math.sqrt(variance))
    assert auroc_stderr(1.0, 5, 10) == 0.0
    assert math.isnan(auroc_stderr(0.8, 0, 10))


def test_grouped_stderr_of_groups_of_one_is_the_usual_one():
    value_N = np.array([0.3, 0.5, 0.7])
    usual = value_N.std(ddof=1) / math.sqrt(3)
    assert grouped_stderr(value_N, "abc") == pytest.approx(usual)
    # the same example thrice tells no more than once
    doubled = grouped_stderr(np.repeat(value_N, 3), [g for g in "abc" for _ in range(3)])
    assert doubled == pytest.approx(usual)
    assert math.isnan(grouped_stderr(value_N, "aaa"))


def test_calibration_bins():
    error, table = calibration(np.array([0.05, 0.15, 1.0]), np.array([0.0, 1.0, 1.0]))
    assert error == pytest.approx((0.05 + 0.85 + 0.0) / 3)
    assert [row["count"] for row in table] == [1, 1, 0, 0, 0, 0, 0, 0, 0, 1]
    assert table[2]["observed"] is None and table[9]["observed"] == 1.0


def test_what_length_tells_is_read_from_the_training_examples():
    assert prefers_longer([(9, 3), (7, 8)], [1.0, 1.0])
    assert not prefers_longer([(3, 9), (8, 7)], [1.0, 1.0])
    assert prefers_longer([(9,), (3,)], [1.0, 0.0])
    assert not prefers_longer([(9,), (3,)], [0.0, 1.0])
    assert not prefers_longer([(9,), (3,)], [1.0, 1.0])  # one class tells nothing


def test_correlation_is_undefined_where_nothing_varies():
    assert correlation(np.array([1.0, 2.0]), np.array([2.0, 4.0])) == pytest.approx(1.0)
    assert math.isnan(correlation(np.array([1.0, 2.0]), np.array([3.0, 3.0])))


# F1 of first errors by hand


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
