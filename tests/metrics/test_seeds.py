"""Student's t against printed tables, against scipy's own tests, and in simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from r1lit.metrics.seeds import (
    Shift,
    holm,
    paired_p_values,
    paired_shift,
    shift_over_seeds,
    welch_p_values,
    welch_shift,
)


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


def test_p_values_of_many_studies_are_those_of_each():
    random = np.random.default_rng(4)
    before_DN, after_DN = random.normal(size=(20, 4)), random.normal(0.5, 3.0, size=(20, 4))
    before_DN[0] = after_DN[0] = 0.5  # no difference and no spread
    before_DN[1], after_DN[1] = 0.25, 0.5  # a difference without spread
    rows = list(zip(before_DN.tolist(), after_DN.tolist(), strict=True))
    wanted = [welch_shift(*row).p_value for row in rows]
    assert welch_p_values(before_DN, after_DN) == pytest.approx(wanted)
    own_DN = after_DN - before_DN
    paired = [paired_shift(row).p_value for row in own_DN.tolist()]
    assert paired_p_values(own_DN) == pytest.approx(paired)
    assert wanted[:2] == paired[:2] == [1.0, 0.0]


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


@pytest.mark.parametrize(
    ("num_seeds", "effect"), [(3, 3.26404), (5, 1.68200), (10, 0.99579), (20, 0.66077)]
)
def test_what_can_be_seen_is_the_effect_size_of_power_tables(num_seeds, effect):
    """Two-sided one-sample t test at 5 %, power 0.8: what G*Power and R's pwr.t.test print."""
    shift = Shift(mean=0.0, stderr=1 / math.sqrt(num_seeds), df=num_seeds - 1)
    assert shift.detectable() == pytest.approx(effect, rel=1e-3)
    normal = Shift(mean=0.0, stderr=1.0, df=math.inf)
    assert normal.detectable() == pytest.approx(1.95996 + 0.84162, rel=1e-4)
    assert Shift(mean=0.1, stderr=0.0, df=2).detectable() == 0.0


@pytest.mark.long
def test_what_can_be_seen_is_found_in_four_of_five_simulated_studies():
    random = np.random.default_rng(3)
    of_three = paired_shift([-1.0, 0.0, 1.0])
    rows = random.normal(of_three.detectable(), 1.0, size=(3000, 3)).tolist()
    found = [paired_shift(row).p_value < 0.05 for row in rows]
    assert np.mean(found) == pytest.approx(0.8, abs=0.025)


def test_more_seeds_are_as_many_as_give_the_power():
    unclear = paired_shift([0.3, -0.1, 0.2, 0.0])  # mean 0.1, deviation 0.1826: effect 0.5477
    assert unclear.p_value > 0.05 and unclear.p_wrong_sign == unclear.p_value / 2
    whole = unclear.num_seeds + unclear.seeds_to_settle()
    assert whole == 29, "R: power.t.test(delta=0.1, sd=0.1826, power=0.8, type='one') is 28.2"
    assert whole == unclear.seeds_needed()
    assert paired_shift([0.1, 0.11, 0.12]).seeds_to_settle() == 0
    assert paired_shift([0.1, 0.11, 0.12]).seeds_needed() == 3, "two have one degree of freedom"
    assert paired_shift([0.1, 0.1]).seeds_needed() == 2, "without spread"
    assert paired_shift([0.1, -0.1]).seeds_to_settle() is None, "there is nothing to find"
    assert paired_shift([1.001, -1.0]).seeds_to_settle() is None, "over a thousand"
    either = welch_shift([0.0, 0.2, 0.4], [0.2, 0.4, 0.6])  # effect 1: 17 on either side
    assert either.num_seeds + either.seeds_to_settle() == 17


def test_the_rule_pairs_where_both_sides_have_the_same_seeds():
    ours, others = {0: 0.3, 1: 0.5, 2: 0.7}, {2: 0.6, 1: 0.4, 0: 0.25, 9: 0.0}
    assert shift_over_seeds(ours, others) == paired_shift([0.3 - 0.25, 0.5 - 0.4, 0.7 - 0.6])
    apart = {seed + 10: value for seed, value in others.items()}
    assert shift_over_seeds(ours, apart) == welch_shift(list(apart.values()), list(ours.values()))
    assert shift_over_seeds(ours, {0: 0.1}) is None and shift_over_seeds({}, {}) is None


def test_a_margin_is_the_smallest_that_is_shown():
    shift = paired_shift([0.01, -0.02, 0.03, 0.0])
    assert shift.is_within(shift.margin() + 1e-9) and not shift.is_within(shift.margin() - 1e-9)
