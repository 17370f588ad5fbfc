"""A Codeforces rating from solved problems: the maximum-likelihood Elo."""

from __future__ import annotations

from collections.abc import Sequence

LOWEST, HIGHEST = 0.0, 5000.0


def expected_solved(rating: float, problem_rating: float) -> float:
    """Return the chance that Elo gives a contestant of ``rating`` to solve a problem.

    1 / (1 + 10^((problem - contestant) / 400)), which is how Codeforces defines a problem's rating:
    contestants of that rating solve it half the time.

    >>> expected_solved(1600, 1600)
    0.5
    """
    return 1.0 / (1.0 + 10.0 ** ((problem_rating - rating) / 400.0))


def elo_rating(solved: Sequence[float], problem_ratings: Sequence[float]) -> float:
    """Return the rating under which the solved shares are likeliest.

    ``solved`` holds pass@1 of each problem. At the maximum of the likelihood the expected number of
    solved problems is the observed one, which bisection finds. Nothing solved is 0 and everything
    solved 5000, where the likelihood has no maximum.

    This is a rating from independent attempts at problems, not from simulated contests as R1
    reports: there are no penalties for time or for wrong tries, so compare it with itself only.

    >>> round(elo_rating([1.0, 0.0], [1400.0, 1600.0]))
    1500

    Raises:
        ValueError: if the lengths differ or there is no problem.
    """
    if len(solved) != len(problem_ratings):
        raise ValueError(f"solved: {len(solved)} shares for {len(problem_ratings)} ratings")
    if not solved:
        raise ValueError("solved: no problem is given, so there is no rating")
    observed = sum(solved)
    low, high = LOWEST, HIGHEST
    for _ in range(60):
        middle = (low + high) / 2
        if sum(expected_solved(middle, p) for p in problem_ratings) < observed:
            low = middle
        else:
            high = middle
    return (low + high) / 2
