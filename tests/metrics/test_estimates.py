"""Estimators against brute force over all subsets, all resamples and all signs."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from statistics import fmean, stdev

import numpy as np
import pytest

from r1lit.metrics import (
    Graded,
    accuracy,
    bootstrap_intervals,
    cons_at_k,
    elo_rating,
    lengths,
    paired_difference,
    pass_at_k,
    standard_error,
    with_error,
)
from r1lit.metrics.estimates import expected_solved


def group(text: str) -> list[Graded]:
    """One response a character: upper case right, lower case wrong, a dot casts no vote."""
    return [Graded(right=c.isupper(), vote=None if c == "." else c) for c in text]


def vote(subset: tuple[Graded, ...]) -> float:
    """The expected worth of a majority vote, ties broken evenly, by definition."""
    counts = Counter(g.vote for g in subset if g.vote is not None)
    if not counts:
        return 0.0
    tied = [key for key, count in counts.items() if count == max(counts.values())]
    return fmean(float(key.isupper()) for key in tied)


GROUPS = ["A", "a.", "AAb", "AbcAb.", "AaBbAa..", "....", "ABAB", "aaaaaaAA"]


@pytest.mark.parametrize("text", GROUPS)
def test_pass_and_cons_are_means_over_all_subsets(text):
    responses = group(text)
    right = [g.right for g in responses]
    cons = cons_at_k(responses)
    for k in range(1, len(text) + 1):
        subsets = list(itertools.combinations(range(len(text)), k))
        passed = fmean(any(right[i] for i in subset) for subset in subsets)
        assert pass_at_k(len(text), sum(right), k) == pytest.approx(passed)
        elected = fmean(vote(tuple(responses[i] for i in subset)) for subset in subsets)
        assert cons[k - 1] == pytest.approx(elected)


def test_accuracy_and_lengths_by_hand():
    """Shares 2/3 and 0, pass@2 1 and 0, cons@2 2/3 and 0; lengths 1, 2, 3 right at 1 and 3."""
    found = accuracy([group("AbA"), group("bb")])
    assert (found["num_problems"], found["num_samples"]) == (2, 2)
    assert found["pass_at_1"]["value"] == pytest.approx(1 / 3)
    assert found["pass_at_1"]["stderr"] == pytest.approx(1 / 3)
    assert [found["pass_at_k"][k]["value"] for k in "12"] == pytest.approx([1 / 3, 1 / 2])
    assert [found["cons_at_k"][k]["value"] for k in "12"] == pytest.approx([1 / 3, 1 / 3])
    with pytest.raises(ValueError, match="without a response"):
        accuracy([group("A"), []])
    measured = [Graded(right=n != 2, vote=None, num_tokens=n) for n in (1, 2, 3)]
    assert lengths([*measured, Graded(right=True, vote=None)]) == pytest.approx(
        {"mean": 2, "median": 2, "p90": 2.8, "max": 3, "right": 2, "wrong": 2}
    )
    assert all(math.isnan(value) for value in lengths(group("A")).values())


def test_raising_k_never_changes_expected_pass_at_1():
    """The mean of the estimate over all ways to draw n of 8 samples is the same for every n."""
    right = [True, False, False, True, True, False, False, False]
    for n in range(1, 9):
        draws = itertools.combinations(right, n)
        assert fmean(pass_at_k(n, sum(draw), 1) for draw in draws) == pytest.approx(3 / 8)


def test_estimates_are_unbiased_for_a_known_chance():
    """P(right) = 0.3: the expectation over all outcomes of 6 draws is 1 - 0.7^k."""
    for k in range(1, 7):
        expected = sum(
            math.comb(6, c) * 0.3**c * 0.7 ** (6 - c) * pass_at_k(6, c, k) for c in range(7)
        )
        assert expected == pytest.approx(1 - 0.7**k)


def test_cons_at_64_of_a_large_group_agrees_with_sampled_subsets():
    responses = group("A" * 25 + "b" * 24 + "c" * 10 + "." * 5)
    cons = cons_at_k(responses)
    draw = random.Random(0)
    for k in (8, 32):
        sampled = fmean(vote(tuple(draw.sample(responses, k))) for _ in range(4000))
        assert cons[k - 1] == pytest.approx(sampled, abs=0.03)
    assert cons[63] == 1.0


def test_standard_error_is_that_of_the_mean():
    values = [0.0, 0.25, 1.0, 0.5, 0.5]
    assert standard_error(values) == pytest.approx(stdev(values) / math.sqrt(5))
    assert math.isnan(standard_error([1.0]))


def test_bootstrap_agrees_with_all_resamples_of_four_problems():
    values = [0.0, 0.25, 1.0, 0.5]
    means = [fmean(draw) for draw in itertools.product(values, repeat=4)]
    low, high = np.percentile(means, [2.5, 97.5])
    found = with_error(values)
    assert (found["low"], found["high"]) == pytest.approx((low, high), abs=0.07)


def test_bootstrap_covers_the_truth_about_as_often_as_it_says():
    draw = np.random.default_rng(0)
    inside = 0
    for _ in range(300):
        low, high = bootstrap_intervals(draw.random((60, 1)) < 0.4, seed=0, num_resamples=500)[0]
        inside += low <= 0.4 <= high
    assert 0.90 <= inside / 300 <= 0.98


def test_bootstrap_is_a_function_of_its_seed_and_takes_problems_whole():
    values = np.array([[0.0, 0.0], [1.0, 2.0], [0.5, 1.0], [0.25, 0.5]])
    once, again = bootstrap_intervals(values, seed=3), bootstrap_intervals(values, seed=3)
    assert once == again != bootstrap_intervals(values, seed=4, num_resamples=50)
    assert once[1] == pytest.approx([2 * x for x in once[0]])  # columns are not drawn apart
    assert all(math.isnan(x) for x in bootstrap_intervals(np.ones((1, 1)))[0])
    with pytest.raises(ValueError, match="no problem"):
        bootstrap_intervals(np.zeros((0, 1)))


def test_p_value_is_the_share_of_sign_patterns_as_far_out():
    a, b = [0.9, 0.4, 0.7, 0.3, 0.5], [0.5, 0.6, 0.1, 0.3, 0.2]
    differences = [x - y for x, y in zip(a, b, strict=True)]
    observed = abs(fmean(differences))
    patterns = list(itertools.product((1, -1), repeat=5))
    far = [
        abs(fmean(s * d for s, d in zip(signs, differences, strict=True))) >= observed - 1e-12
        for signs in patterns
    ]
    result = paired_difference(a, b)
    assert result.p_value == pytest.approx(fmean(far))
    assert result.mean == pytest.approx(fmean(differences))
    assert (result.better, result.worse, result.num_problems) == (3, 1, 5)
    assert result.low <= result.mean <= result.high


def test_drawn_and_exact_p_values_agree():
    draw = np.random.default_rng(1)
    a, b = draw.random(30), draw.random(30) + 0.1
    drawn = paired_difference(a.tolist(), b.tolist()).p_value
    signs = draw.integers(0, 2, size=(200_000, 30)) * 2 - 1
    reference = (abs(signs @ (a - b)) >= abs((a - b).sum())).mean()
    assert drawn == pytest.approx(reference, abs=0.02)
    assert paired_difference([1.0] * 400, [0.0] * 400).p_value == 1 / 10_001


def test_p_values_of_like_runs_are_not_small_too_often():
    draw = np.random.default_rng(2)
    small = 0
    for _ in range(200):
        a, b = draw.random(25) < 0.5, draw.random(25) < 0.5
        small += (
            paired_difference(a.astype(float), b.astype(float), num_resamples=200).p_value < 0.05
        )
    assert small / 200 <= 0.09


def test_the_same_run_differs_by_nothing():
    result = paired_difference([0.5, 1.0, 0.0], [0.5, 1.0, 0.0])
    assert (result.mean, result.low, result.high, result.p_value) == (0.0, 0.0, 0.0, 1.0)
    with pytest.raises(ValueError, match="2 problems in one run and 1"):
        paired_difference([1.0, 0.0], [1.0])
    with pytest.raises(ValueError, match="no problem"):
        paired_difference([], [])


def test_elo_returns_the_rating_that_made_the_shares():
    ratings = [800.0, 1200.0, 1900.0, 2400.0]
    solved = [expected_solved(1733.0, p) for p in ratings]
    assert elo_rating(solved, ratings) == pytest.approx(1733.0, abs=0.01)
    better = [min(1.0, s + 0.1) for s in solved]
    assert elo_rating(better, ratings) > 1733.0
    assert elo_rating([0.0] * 4, ratings) < 1 and elo_rating([1.0] * 4, ratings) > 4999
    with pytest.raises(ValueError, match="1 shares for 2"):
        elo_rating([1.0], [800.0, 900.0])
    with pytest.raises(ValueError, match="no problem"):
        elo_rating([], [])
