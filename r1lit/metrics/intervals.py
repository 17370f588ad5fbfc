"""Standard error and bootstrap interval of a mean over problems; the difference of two runs.

All random numbers are a function of ``seed``, so a table can be made again to the last digit.

    P problems   K columns, one for each k   R resamples
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from r1lit.errors import check_at_least
from r1lit.seeding import generator

NUM_RESAMPLES = 10_000
LEVEL = 0.95
MAX_EXACT = 16  # problems that differ, up to which all 2^n signs are tried


def standard_error(values: Sequence[float]) -> float:
    """Return the standard error of the mean, or NaN of fewer than two values.

    The sample standard deviation (n - 1) over sqrt(n).

    >>> standard_error([0.0, 1.0])
    0.5
    """
    n = len(values)
    if n < 2:
        return math.nan
    return float(np.std(values, ddof=1)) / math.sqrt(n)


def wilson_interval(count: int, total: int) -> tuple[float, float]:
    """Return the 95 % interval of a share by Wilson's score, which is not empty at 0 and at 1.

    >>> [round(bound, 4) for bound in wilson_interval(0, 100)]
    [0.0, 0.037]
    """
    if not total:
        return math.nan, math.nan
    z = NormalDist().inv_cdf(1 - (1 - LEVEL) / 2)
    share, more = count / total, z * z / total
    centre = (share + more / 2) / (1 + more)
    half = math.sqrt(share * (1 - share) * more + more * more / 4) / (1 + more)
    return max(0.0, centre - half), min(1.0, centre + half)


def bootstrap_intervals(
    values_PK: np.ndarray, *, seed: int = 0, num_resamples: int = NUM_RESAMPLES
) -> list[tuple[float, float]]:
    """Return the 95 % interval of each column's mean: the percentile bootstrap over problems.

    Problems are resampled with replacement, all columns of a problem together, and the mean is
    resampled; the interval lies between the 2.5th and the 97.5th percentile of these means. A
    single problem gives NaN: nothing is known about another.

    Raises:
        ValueError: if there is no problem, or ``num_resamples`` is below 1.
    """
    num_problems, num_columns = values_PK.shape
    if num_problems < 1:
        raise ValueError("values: no problem is given, so nothing can be resampled")
    check_at_least("num_resamples", num_resamples, 1)
    if num_problems == 1:
        return [(math.nan, math.nan)] * num_columns
    means_RK = _resampled_means(values_PK, generator(seed, "bootstrap"), num_resamples)
    tail = 100 * (1 - LEVEL) / 2
    low_K, high_K = np.percentile(means_RK, [tail, 100 - tail], axis=0)
    return [(float(low), float(high)) for low, high in zip(low_K, high_K, strict=True)]


def _resampled_means(
    values_PK: np.ndarray, random: np.random.Generator, num_resamples: int
) -> np.ndarray:
    """Return ``means_RK``: each problem's count in a resample, times the values."""
    num_problems = len(values_PK)
    chunks, left = [], num_resamples
    while left:
        size = min(left, max(1, 4_000_000 // num_problems))  # bounds the memory
        count_RP = random.multinomial(
            num_problems, np.full(num_problems, 1 / num_problems), size=size
        )
        chunks.append(count_RP @ values_PK / num_problems)
        left -= size
    return np.concatenate(chunks)


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Run A less run B on the same problems.

    ``mean`` is the mean difference, ``stderr`` its standard error, ``low`` and ``high`` its 95 %
    interval, ``p_value`` two-sided. ``better`` and ``worse`` count problems.
    """

    mean: float
    stderr: float
    low: float
    high: float
    p_value: float
    better: int
    worse: int
    num_problems: int


def paired_difference(
    a: Sequence[float],
    b: Sequence[float],
    *,
    seed: int = 0,
    num_resamples: int = NUM_RESAMPLES,
) -> Difference:
    """Return the difference of two runs, from one number a problem each, aligned.

    The interval is the percentile bootstrap of the mean difference over problems. The p-value is
    that of the paired permutation test: were the runs alike, each problem's difference could as
    well have the other sign. It is the share of sign patterns whose mean is at least as far from 0:
    of all 2^n where at most 16 problems differ, else of ``num_resamples`` random ones, with the
    observed one counted, (hits + 1) / (num_resamples + 1), so it is never 0.

    Three problems on which A wins by 1 leave two of eight patterns as far out:

    >>> paired_difference([1, 1, 1], [0, 0, 0]).p_value
    0.25

    Raises:
        ValueError: if the lengths differ or there is no problem.
    """
    if len(a) != len(b):
        raise ValueError(f"values: {len(a)} problems in one run and {len(b)} in the other")
    if not len(a):
        raise ValueError("values: no problem is given, so nothing can be compared")
    difference_P = np.asarray(a, dtype=np.float64) - np.asarray(b, dtype=np.float64)
    low, high = bootstrap_intervals(difference_P[:, None], seed=seed, num_resamples=num_resamples)[
        0
    ]
    return Difference(
        mean=float(difference_P.mean()),
        stderr=standard_error(difference_P.tolist()),
        low=low,
        high=high,
        p_value=_sign_flip_p_value(difference_P, seed, num_resamples),
        better=int((difference_P > 0).sum()),
        worse=int((difference_P < 0).sum()),
        num_problems=len(difference_P),
    )


def _sign_flip_p_value(difference_P: np.ndarray, seed: int, num_resamples: int) -> float:
    moved = difference_P[difference_P != 0]
    observed = abs(moved.sum())
    least = observed - 1e-9 * max(1.0, observed)  # sums of the same numbers round differently
    if len(moved) <= MAX_EXACT:
        sums = np.zeros(1)
        for value in moved:
            sums = np.concatenate([sums + value, sums - value])
        return float((np.abs(sums) >= least).mean())
    random = generator(seed, "signs")
    hits, left = 0, num_resamples
    while left:
        size = min(left, max(1, 4_000_000 // len(moved)))
        signs = random.integers(0, 2, size=(size, len(moved))) * 2 - 1
        hits += int((np.abs(signs @ moved) >= least).sum())
        left -= size
    return (hits + 1) / (num_resamples + 1)
