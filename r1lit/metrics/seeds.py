"""Differences over a few runs: intervals, power, equivalence, Holm's correction.

One rule for every comparison of trainings: the 95 % interval is Student's t over seeds, paired by
seed where both sides have the same seeds, Welch's where not. Three seeds are few: with 2 degrees of
freedom the interval is 4.3 standard errors to either side, not 2.

scipy comes with the extra ``sweep``; in this package only this file needs it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize, stats

from r1lit.metrics.estimates import mean_and_error

POWER = 0.8
"""Of the test at 5 %, where a number of seeds or a difference is named for it."""
MOST_SEEDS = 1000
"""The largest number of seeds that is named."""


@dataclass(frozen=True, kw_only=True)
class Shift:
    """A mean difference, its standard error and its degrees of freedom, ``inf`` for a normal one.

    ``low`` and ``high`` bound the 95 % interval; ``p_value`` is two-sided, against no difference.
    ``variances`` are those between seeds: of the paired differences, or of either side. With them
    and ``num_seeds`` (of the smaller side) it is known what other numbers of seeds would see.
    """

    mean: float
    stderr: float
    df: float
    variances: tuple[float, ...] = ()
    num_seeds: int = 0

    @property
    def is_paired(self) -> bool:
        """True where the shift is the mean of differences within seeds."""
        return len(self.variances) == 1

    @property
    def low(self) -> float:
        """Lower bound of the 95 % interval."""
        return self.mean - float(stats.t.ppf(0.975, self.df)) * self.stderr

    @property
    def high(self) -> float:
        """Upper bound of the 95 % interval."""
        return 2 * self.mean - self.low

    @property
    def p_value(self) -> float:
        """Chance of a difference at least as large where there is none."""
        return 2 * min(self._tail(0.0), 1 - self._tail(0.0))

    @property
    def p_wrong_sign(self) -> float:
        """Probability that the true difference has the other sign: p / 2, under a flat prior."""
        return self.p_value / 2

    def detectable(self, power: float = POWER) -> float:
        """Return the smallest true difference that the test at 5 % finds with this power.

        From the noncentral t of the same standard error and degrees of freedom; 0 of no spread.
        """
        if not self.stderr:
            return 0.0
        return _least_noncentrality(self.df, power) * self.stderr

    def seeds_to_settle(self, power: float = POWER) -> int | None:
        """Return how many more seeds find this difference at 5 % with this power, if it is true.

        0 where it is clear already. Of Welch's, on either side. None where more than ``MOST_SEEDS``
        would be needed, or no spread between seeds is known.
        """
        if self.p_value < 0.05:
            return 0
        needed = self.seeds_needed(power)
        return None if needed is None else max(1, needed - self.num_seeds)

    def seeds_needed(self, power: float = POWER) -> int | None:
        """Return how many seeds, two at least, find this difference at 5 % with this power.

        Of Welch's, on either side. None where more than ``MOST_SEEDS`` would be needed, or no
        spread between seeds is known.
        """
        if not self.variances or not self.mean:
            return None
        least, most = 2, MOST_SEEDS
        if not self.stderr:
            return least
        if self._power(most) < power:
            return None
        while least < most:
            middle = (least + most) // 2
            least, most = (least, middle) if self._power(middle) >= power else (middle + 1, most)
        return least

    def _power(self, num_seeds: int) -> float:
        """Return the power with so many seeds, the mean and variances between seeds as they are."""
        df = _degrees(self.variances, [num_seeds] * len(self.variances))
        stderr = math.sqrt(sum(self.variances) / num_seeds)
        return _power(abs(self.mean) / stderr, df)

    def is_within(self, margin: float) -> bool:
        """Return whether the shift is smaller than ``margin``: two one-sided tests at 5 %."""
        return self.is_above(-margin) and 1 - self._tail(margin) < 0.05

    def margin(self) -> float:
        """Return the smallest margin within which it is shown to lie (`is_within`)."""
        return abs(self.mean) + float(stats.t.ppf(0.95, self.df)) * self.stderr

    def is_above(self, bound: float) -> bool:
        """Return whether the shift lies above ``bound``: one one-sided test at 5 %."""
        return self._tail(bound) < 0.05

    def _tail(self, bound: float) -> float:
        """Chance of so large a mean if the true one were ``bound``."""
        if not self.stderr:
            return 0.5 if self.mean == bound else float(self.mean < bound)
        return float(stats.t.sf((self.mean - bound) / self.stderr, self.df))


def _power(noncentrality: float, df: float) -> float:
    """Return the power of the two-sided t test at 5 %."""
    if math.isinf(df):
        return float(stats.norm.sf(stats.norm.isf(0.025) - noncentrality))
    return float(stats.nct.sf(stats.t.isf(0.025, df), df, noncentrality))


def _least_noncentrality(df: float, power: float) -> float:
    """Return the noncentrality, the true difference in standard errors, that has this power."""
    upper = 10.0 * float(stats.t.isf(0.025, df))
    return float(optimize.brentq(lambda at: _power(at, df) - power, 0.0, upper))


def _degrees(variances: Sequence[float], counts: Sequence[int]) -> float:
    """Return the degrees of freedom of a mean over seeds, or of two by Welch and Satterthwaite."""
    squared = [variance / count for variance, count in zip(variances, counts, strict=True)]
    parts = sum(own**2 / (count - 1) for own, count in zip(squared, counts, strict=True))
    return sum(squared) ** 2 / parts if parts else float(sum(counts) - len(counts))


def paired_shift(differences: Sequence[float]) -> Shift:
    """Return the mean of each run's own difference, with n - 1 degrees of freedom.

    Raises:
        ValueError: of fewer than two runs.
    """
    mean, error = mean_and_error(differences)
    if error is None:
        raise ValueError("differences: one run has no error between runs")
    num = len(differences)
    return Shift(mean=mean, stderr=error, df=num - 1, variances=(error**2 * num,), num_seeds=num)


def welch_shift(before: Sequence[float], after: Sequence[float]) -> Shift:
    """Return the difference of two means of runs of their own, with Welch's degrees of freedom.

    Raises:
        ValueError: if there are fewer than two runs on a side.
    """
    (mean_a, error_a), (mean_b, error_b) = mean_and_error(before), mean_and_error(after)
    counts = [len(before), len(after)]
    if error_a is None or error_b is None:
        raise ValueError(f"runs: {len(before)} and {len(after)} are too few; two are needed")
    variances = (error_a**2 * counts[0], error_b**2 * counts[1])
    return Shift(
        mean=mean_b - mean_a,
        stderr=math.hypot(error_a, error_b),
        df=_degrees(variances, counts),
        variances=variances,
        num_seeds=min(counts),
    )


def paired_p_values(differences_DN: np.ndarray) -> np.ndarray:
    """Return p of `paired_shift` for many studies at once, a row each."""
    num = differences_DN.shape[1]
    variances_D = differences_DN.var(axis=1, ddof=1) / num
    return _p_values(differences_DN.mean(axis=1), variances_D, num - 1)


def welch_p_values(before_DN: np.ndarray, after_DN: np.ndarray) -> np.ndarray:
    """Return p of `welch_shift` for many studies of equally many runs a side, a row each."""
    num = before_DN.shape[1]
    sides_2D = np.stack([side.var(axis=1, ddof=1) / num for side in (before_DN, after_DN)])
    variances_D, parts_D = sides_2D.sum(axis=0), (sides_2D**2).sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        df_D = (num - 1) * variances_D**2 / parts_D
    return _p_values(after_DN.mean(axis=1) - before_DN.mean(axis=1), variances_D, df_D)


def _p_values(means_D: np.ndarray, variances_D: np.ndarray, df: np.ndarray | int) -> np.ndarray:
    """Return p, two-sided, of means with these squared standard errors."""
    with np.errstate(divide="ignore", invalid="ignore"):
        p_D = 2 * stats.t.sf(np.abs(means_D) / np.sqrt(variances_D), df)
    return np.where(variances_D > 0, p_D, means_D == 0)


def shift_over_seeds(ours: Mapping[int, float], others: Mapping[int, float]) -> Shift | None:
    """Return ours less others by the rule: paired where both have the same seeds, else Welch's.

    Args:
        ours: a number of each run, by its seed.
        others: the same of the runs compared with. Where at least two seeds are common, those are
            paired and the rest is left out.

    Returns:
        None where neither two pairs nor two runs on each side are there.
    """
    both = sorted(ours.keys() & others.keys())
    if len(both) > 1:
        return paired_shift([ours[seed] - others[seed] for seed in both])
    if min(len(ours), len(others)) > 1:
        return welch_shift(list(others.values()), list(ours.values()))
    return None


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values for several comparisons together (Holm 1979), in the order given.

    Calling those below 5 % differences errs once in twenty such families, not comparisons.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]

    Raises:
        ValueError: if one is no number.
    """
    if any(math.isnan(p_value) for p_value in p_values):
        raise ValueError(f"p_values: {list(p_values)} are not all numbers")
    adjusted, least = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        least = min(1.0, max(least, p_values[index] * (len(p_values) - rank)))
        adjusted[index] = least
    return adjusted
