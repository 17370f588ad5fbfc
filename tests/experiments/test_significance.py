"""Student's t against printed tables, against scipy's own tests, and in simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from experiments.significance import Shift, holm, paired_shift, welch_shift


@pytest.mark.parametrize(
    ("df", "quantile"), [(1, 12.7062), (2, 4.30265), (4, 2.77645), (30, 2.04227), (math.inf, 1.96)]
)
def test_quantiles_of_the_tables(df, quantile):
    shift = Shift(mean=1.0, stderr=1.0, df=df)
    assert (shift.low, shift.high) == pytest.approx((1 - quantile, 1 + quantile), rel=1e-4)
    at_the_end = Shift(mean=quantile, stderr=1.0, df=df)
    assert at_the_end.p_value == pytest.approx(0.05, rel=1e-3)
    mirrored = Shift(mean=-quantile, stderr=1.0, df=df)
    assert mirrored.p_value == pytest.approx(at_the_end.p_value)


def test_shifts_are_scipys_tests():
    random = np.random.default_rng(0)
    for n, m in ((2, 2), (3, 3), (3, 7)):
        a, b = random.normal(0, 1, n).tolist(), random.normal(0.5, 3, m).tolist()
        found, wanted = welch_shift(a, b), stats.ttest_ind(b, a, equal_var=False)
        assert found.p_value == pytest.approx(wanted.pvalue)
        interval = wanted.confidence_interval(0.95)
        assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
        assert paired_shift(a).p_value == pytest.approx(stats.ttest_1samp(a, 0).pvalue)


@pytest.mark.long
def test_three_runs_that_are_alike_are_called_different_once_in_twenty():
    random = np.random.default_rng(1)
    shifts = [paired_shift(row) for row in random.normal(size=(4000, 3)).tolist()]
    assert np.mean([s.p_value < 0.05 for s in shifts]) == pytest.approx(0.05, abs=0.012)
    # two standard errors would have said so of nearly one in five
    assert np.mean([abs(s.mean) > 2 * s.stderr for s in shifts]) > 0.15
    assert all((s.low <= 0 <= s.high) == (s.p_value >= 0.05) for s in shifts[:100])


@pytest.mark.long
def test_what_lies_on_the_margin_is_called_smaller_once_in_twenty():
    random = np.random.default_rng(2)
    shifts = [paired_shift(row) for row in random.normal(1.0, 0.1, size=(2000, 3)).tolist()]
    assert np.mean([s.is_within(1.0) for s in shifts]) == pytest.approx(0.05, abs=0.02)
    assert np.mean([s.is_within(2.0) for s in shifts]) > 0.95
    assert not Shift(mean=0.0, stderr=0.5, df=2).is_within(1.0)  # too unsure, not too large
    assert Shift(mean=5.0, stderr=0.1, df=2).is_above(1.0)


def test_runs_without_spread():
    assert Shift(mean=0.1, stderr=0.0, df=2).p_value == 0.0
    assert Shift(mean=0.0, stderr=0.0, df=2).p_value == 1.0
    assert Shift(mean=0.0, stderr=0.0, df=2).is_within(0.01)
    assert welch_shift([1.0, 1.0], [2.0, 2.0]).mean == 1.0


def test_holm():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.9]) == [1.0, 1.0] and holm([]) == []


@pytest.mark.parametrize("make", [lambda: paired_shift([1.0]), lambda: welch_shift([1.0], [1, 2])])
def test_one_run_says_nothing_of_others(make):
    with pytest.raises(ValueError, match="run"):
        make()


def test_what_is_no_number_is_not_corrected():
    with pytest.raises(ValueError, match="are not all numbers"):
        holm([0.01, math.nan])
