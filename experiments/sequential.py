"""A sequential test over seeds: look after every seed, and err in 5 of 100 studies all the same.

    python -m experiments.sequential   # simulates its errors, fills in docs/STATISTICS.md

Student's t test after every seed, stopped at the first p below 0.05, errs far more often than in 5
of 100 studies. Here each look has a smaller level, the same at all looks (Pocock 1977), such that
the chance of any false alarm up to the last look is 5 %. The level is found by simulation: without
a true difference, t does not depend on the variance, so for normal differences it is exact.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy import stats

from experiments.page import write_into
from experiments.study import HERE
from experiments.tables import as_markdown
from r1lit.metrics.seeds import Shift, paired_shift
from r1lit.seeding import generator

FIRST = 3
"""Seeds at the first look; with two, one degree of freedom would take most of the error."""
ALPHA = 0.05
NUM_STUDIES = 40_000
"""Simulated, to find a level."""
PAGE = HERE.parent / "docs" / "STATISTICS.md"
MARKS = ("<!-- sequential -->", "<!-- /sequential -->")
MOSTS = (5, 10, 20)
EFFECTS = (0.0, 0.5, 1.0, 2.0)
"""True differences, in standard deviations between seeds."""
CHECKED = 10_000
"""Simulated studies of a row of the page."""


def p_values_at_looks(differences_NM: np.ndarray) -> np.ndarray:
    """Return p of Student's t after each look: studies × looks, of studies × seeds in order."""
    num_seeds = np.arange(1, differences_NM.shape[1] + 1)
    sums = np.cumsum(differences_NM, axis=1)
    squares = np.cumsum(differences_NM**2, axis=1)
    looks = slice(FIRST - 1, None)
    n, total, square = num_seeds[looks], sums[:, looks], squares[:, looks]
    variance = (square - total**2 / n) / (n - 1)
    t = total / np.sqrt(n * variance)
    return np.asarray(2 * stats.t.sf(np.abs(t), n - 1))


@cache
def level(most: int, alpha: float = ALPHA) -> float:
    """Return the level of each look, such that all up to ``most`` seeds err at ``alpha``.

    Raises:
        ValueError: if there is no second look to correct for.
    """
    if most < FIRST:
        raise ValueError(f"most: {most} seeds are too few; the first look is after {FIRST}")
    random = generator(0, f"sequential-{most}")
    smallest = p_values_at_looks(random.normal(size=(NUM_STUDIES, most))).min(axis=1)
    return float(np.quantile(smallest, alpha))


@dataclass(frozen=True, kw_only=True)
class Look:
    """Where a comparison stands: its shift over the seeds used, and whether it is settled.

    ``low`` and ``high`` bound the interval that holds the true difference at all looks of 95 in 100
    studies (the repeated confidence interval), not just at this one.
    """

    shift: Shift
    is_clear: bool
    low: float
    high: float


def look(differences: Sequence[float], most: int, alpha: float = ALPHA) -> Look | None:
    """Return the first look at which a comparison is clear, else the last one; None of too few.

    Args:
        differences: of each seed, in the order of the seeds.
        most: seeds that the study may use in all.
        alpha: the error of the whole study.
    """
    at_each = level(most, alpha)
    found = None
    for num_seeds in range(FIRST, min(len(differences), most) + 1):
        shift = paired_shift(differences[:num_seeds])
        half = float(stats.t.isf(at_each / 2, shift.df)) * shift.stderr
        is_clear = shift.p_value < at_each
        found = Look(shift=shift, is_clear=is_clear, low=shift.mean - half, high=shift.mean + half)
        if is_clear:
            break
    return found


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Shares of simulated studies: called clear, of them with the wrong sign; seeds on average."""

    clear: float
    wrong_sign: float
    num_seeds: float


def simulate(differences_NM: np.ndarray, at_each: float) -> Errors:
    """Return how studies of known differences, whose true mean is not below 0, end."""
    most = differences_NM.shape[1]
    is_clear_NL = p_values_at_looks(differences_NM) < at_each
    clear_N = is_clear_NL.any(axis=1)
    used_N = np.where(clear_N, is_clear_NL.argmax(axis=1) + FIRST, most)
    means_N = np.cumsum(differences_NM, axis=1)[np.arange(len(used_N)), used_N - 1]
    return Errors(
        clear=float(clear_N.mean()),
        wrong_sign=float((clear_N & (means_N < 0)).mean()),
        num_seeds=float(used_N.mean()),
    )


def as_table() -> str:
    """Return the Markdown of simulated error rates, from fixed seeds."""
    rows = []
    kinds = {
        "normal": lambda random, size: random.normal(size=size),
        "heavy tails (t, 3 degrees)": lambda random, size: random.standard_t(3, size) / 3**0.5,
    }
    for most in MOSTS:
        for kind, sample in kinds.items():
            for effect in EFFECTS if kind == "normal" else EFFECTS[:1]:
                random = generator(1, f"{kind}-{most}-{effect}")
                differences_NM = sample(random, (CHECKED, most)) + effect
                ours = simulate(differences_NM, level(most))
                plain = simulate(differences_NM, ALPHA)
                rows.append(
                    [str(most), kind, f"{effect:g}", f"{level(most):.3f}", f"{ours.clear:.3f}",
                     f"{ours.wrong_sign:.3f}", f"{ours.num_seeds:.1f}", f"{plain.clear:.3f}"]
                )  # fmt: skip
    headings = [
        "most seeds", "differences", "true difference", "level of a look", "called clear",
        "with the wrong sign", "seeds on average", "called clear at 0.05 a look",
    ]  # fmt: skip
    return as_markdown(headings, rows, num_text=2)


def main() -> int:
    """Fill in the table of error rates."""
    table = as_table()
    write_into(PAGE, table, marks=MARKS)
    print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
