"""Errors of a mean of a few runs: Student's t, equivalence within a margin, many comparisons.

Three seeds are few: with 2 degrees of freedom the 95 % interval is 4.3 standard errors to either
side, not 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from r1lit.metrics.estimates import mean_and_error


@dataclass(frozen=True, kw_only=True)
class Shift:
    """A mean difference, its standard error and its degrees of freedom, ``inf`` for a normal one.

    ``low`` and ``high`` bound the 95 % interval; ``p_value`` is two-sided, against no difference.
    """

    mean: float
    stderr: float
    df: float

    @property
    def low(self) -> float:
        """Lower bound of the 95 % interval."""
        return self.mean - t_quantile(0.975, self.df) * self.stderr

    @property
    def high(self) -> float:
        """Upper bound of the 95 % interval."""
        return self.mean + t_quantile(0.975, self.df) * self.stderr

    @property
    def p_value(self) -> float:
        """Chance of a difference at least as large where there is none."""
        return 2 * self._tail(0.0) if self.mean >= 0 else 2 * (1 - self._tail(0.0))

    def is_within(self, margin: float) -> bool:
        """Whether it is shown to be smaller than ``margin``: two one-sided tests at 5 %."""
        return self.is_above(-margin) and 1 - self._tail(margin) < 0.05

    def is_above(self, bound: float) -> bool:
        """Whether it is shown to lie above ``bound``: one one-sided test at 5 %."""
        return self._tail(bound) < 0.05

    def _tail(self, bound: float) -> float:
        """Chance of so large a mean if the true one were ``bound``."""
        if not self.stderr:
            return 0.5 if self.mean == bound else float(self.mean < bound)
        return t_tail((self.mean - bound) / self.stderr, self.df)


def paired_shift(differences: Sequence[float]) -> Shift:
    """Return the mean of each run's own difference, with n - 1 degrees of freedom.

    Raises:
        ValueError: of fewer than two runs.
    """
    mean, error = mean_and_error(differences)
    if error is None:
        raise ValueError("differences: one run has no error between runs")
    return Shift(mean=mean, stderr=error, df=len(differences) - 1)


def welch_shift(before: Sequence[float], after: Sequence[float]) -> Shift:
    """Return the difference of two means of runs of their own, with Welch's degrees of freedom.

    Raises:
        ValueError: if there are fewer than two runs on a side.
    """
    (mean_a, error_a), (mean_b, error_b) = mean_and_error(before), mean_and_error(after)
    if error_a is None or error_b is None:
        raise ValueError(f"runs: {len(before)} and {len(after)} are too few; two are needed")
    variance = error_a**2 + error_b**2
    parts = error_a**4 / (len(before) - 1) + error_b**4 / (len(after) - 1)
    df = variance**2 / parts if parts else len(before) + len(after) - 2
    return Shift(mean=mean_b - mean_a, stderr=math.sqrt(variance), df=df)


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
    adjusted = [0.0] * len(p_values)
    least = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        least = min(1.0, max(least, p_values[index] * (len(p_values) - rank)))
        adjusted[index] = least
    return adjusted


def t_tail(t: float, df: float) -> float:
    """Return the chance that Student's t of ``df`` degrees of freedom exceeds ``t``.

    >>> round(t_tail(4.303, 2), 4)
    0.025
    """
    if math.isinf(df):
        return math.erfc(t / math.sqrt(2)) / 2
    tail = _incomplete_beta(df / (df + t * t), df / 2, 0.5) / 2
    return tail if t >= 0 else 1 - tail


def t_quantile(share: float, df: float) -> float:
    """Return what Student's t falls below with chance ``share``, of 0.5 to 1, by bisection."""
    low, high = 0.0, 1.0
    while t_tail(high, df) > 1 - share:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if t_tail(middle, df) > 1 - share else (low, middle)
    return (low + high) / 2


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function by its continued fraction (DLMF 8.17.22)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # where the fraction of the other end converges fast
        return 1 - _incomplete_beta(1 - x, b, a)
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(front + a * math.log(x) + b * math.log1p(-x)) / a
    fraction = 1.0
    for m in range(40 + round(4 * math.sqrt(a + b)), 0, -1):  # from the inside out, to rounding
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m - 1) * (a + b + m - 1) * x / ((a + 2 * m - 2) * (a + 2 * m - 1))
        fraction = 1 + odd / (1 + even / fraction)
    return front / fraction
