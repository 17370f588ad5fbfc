"""pass@k, cons@k, errors, intervals and lengths of graded responses.

Every table and curve takes them from here: ``r1lit test``, validation while training,
``r1lit-score`` and the experiments.

Errors and intervals are over problems, from one number a problem: responses to one problem are not
independent, so they are averaged first.

    P problems   K columns, one for each k
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from math import comb
from typing import Any, NamedTuple

import numpy as np

from r1lit.metrics.intervals import bootstrap_intervals, standard_error
from r1lit.problems import Response


class Graded(NamedTuple):
    """The fields of a graded response that the metrics need.

    ``vote`` is the key under which majority vote counts the answer; None casts no vote.
    ``num_tokens`` is None where the length is not known.
    """

    right: bool
    vote: str | None
    num_tokens: int | None = None
    finished: bool = True

    @classmethod
    def of(cls, response: Response) -> Graded:
        """Return the fields of a response; a verdict of value 1 is right."""
        verdict = response.verdict
        return cls(verdict.value == 1.0, verdict.canonical, response.num_sampled, response.finished)

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> Graded:
        """Return the fields of a line of ``responses.jsonl``."""
        return cls(
            float(record["value"]) == 1.0,
            record["canonical"],
            record.get("num_tokens"),
            record.get("finished", True),
        )


Group = Sequence[Graded]


def accuracy(groups: Sequence[Group], *, seed: int = 0) -> dict[str, Any]:
    """Return pass@1, pass@k and cons@k over problems, each with its 95 % interval.

    ``pass_at_1``: the mean over problems of the share of right responses, with its standard error.
    ``pass_at_k`` and ``cons_at_k`` are by k (as text, as in JSON) from 1 to ``num_samples``, the
    responses to each problem; where problems have different numbers of them, the smallest. What is
    undefined (an error of one problem) is NaN.

    Raises:
        ValueError: if there is no problem, or one without a response.
    """
    num_samples = min(map(len, groups), default=0)
    if not num_samples:
        raise ValueError(f"responses: {len(groups)} problems, one of them without a response")
    passed_PK, elected_PK = [], []
    for group in groups:
        num_right = sum(graded.right for graded in group)
        passed_PK.append([pass_at_k(len(group), num_right, k + 1) for k in range(num_samples)])
        elected_PK.append(cons_at_k(group)[:num_samples])
    return {
        "num_problems": len(groups),
        "num_samples": num_samples,
        "pass_at_1": with_error([share_right(group) for group in groups], seed=seed),
        "pass_at_k": _by_k(np.array(passed_PK), seed),
        "cons_at_k": _by_k(np.array(elected_PK), seed),
    }


def _by_k(values_PK: np.ndarray, seed: int) -> dict[str, dict[str, float]]:
    intervals = bootstrap_intervals(values_PK, seed=seed)
    return {
        str(k): {"value": float(mean), "low": low, "high": high}
        for k, (mean, (low, high)) in enumerate(
            zip(values_PK.mean(0), intervals, strict=True), start=1
        )
    }


def share_right(group: Group) -> float:
    """Return the share of right responses to one problem."""
    return sum(graded.right for graded in group) / len(group)


def lengths(responses: Group) -> dict[str, float]:
    """Return mean, median, 90th percentile (interpolated) and maximum of the lengths in tokens.

    ``right`` and ``wrong`` are the means over right and over not right responses, NaN of none.
    """
    known = [(g.num_tokens, g.right) for g in responses if g.num_tokens is not None]
    if not known:
        return dict.fromkeys(("mean", "median", "p90", "max", "right", "wrong"), math.nan)
    num_tokens = [n for n, _ in known]
    return {
        "mean": mean(num_tokens),
        "median": float(np.median(num_tokens)),
        "p90": float(np.percentile(num_tokens, 90)),
        "max": max(num_tokens),
        "right": mean([n for n, right in known if right]),
        "wrong": mean([n for n, right in known if not right]),
    }


def pass_at_k(num_samples: int, num_right: int, k: int) -> float:
    """Return the unbiased estimate of pass@k from n samples of which c are right.

    pass@k is the chance that k responses hold at least one right one. Chen et al. 2021 (arXiv
    2107.03374, Eq. 1): 1 - C(n-c, k) / C(n, k), the share of the k-subsets of the samples that
    hold a right one. Computed as 1 - prod over i = n-c+1 .. n of (1 - k/i), which forms no large
    binomials.

    Four samples, one right: half of the six pairs hold it.

    >>> pass_at_k(4, 1, 2)
    0.5

    Raises:
        ValueError: If not 0 <= num_right <= num_samples or not 1 <= k <= num_samples.
    """
    if not 0 <= num_right <= num_samples:
        raise ValueError(f"num_right={num_right} must lie in 0..num_samples={num_samples}")
    if not 1 <= k <= num_samples:
        raise ValueError(f"k={k} must lie in 1..num_samples={num_samples}")
    if num_samples - num_right < k:
        return 1.0
    if k == 1:
        return num_right / num_samples
    wrong = range(num_samples - num_right + 1, num_samples + 1)
    return 1.0 - math.prod(1.0 - k / i for i in wrong)


def cons_at_k(group: Group) -> list[float]:
    """Return cons@k for k = 1..n of one group of n graded responses, as a list of n numbers.

    cons@k is the chance that k responses elect a right answer by majority vote. R1 reports cons@64
    (v1) and cons@16 (Nature, Fig. 1a): the answer most of k responses agree on is taken, and the
    problem counts as solved when it is right. What the paper leaves open is fixed here:

    - k responses without a vote elect nothing: 0.
    - A tie is broken at random among the tied keys; its value is the expectation, the share of the
      tied keys that are right. No generator is involved.
    - For k below n, the value is the expectation over all C(n, k) subsets of the samples, exactly
      (not over a sample of subsets), so it does not depend on their order.

    A key is worth the share of its voters that are right, which is 0 or 1 when a verifier grades
    equal answers alike. So cons@1 is pass@1 (as long as every right response casts a vote) and
    cons@n the plain vote.

    The expectation over subsets is a count, by generating functions. Key r with c_r votes wins
    with exactly m of them when every other key q has at most m; t of those having exactly m is a
    tie of t + 1. In the product

        C(c_r, m) x^m * prod over q of (sum over j < m of C(c_q, j) x^j  +  C(c_q, m) x^m y)

    times (1 + x)^(n - all votes) for the voteless, the coefficient of x^k y^t counts these subsets
    of size k. Summed over m and t, weighted with 1 / (t + 1), over C(n, k): the chance of r at k.

    Votes a, a, b with only a right: single votes elect a in 2 of 3; the pairs aa, ab, ab are worth
    1, 1/2, 1/2; all three elect a.

    >>> a, b = Graded(right=True, vote="a"), Graded(right=False, vote="b")
    >>> [round(value, 3) for value in cons_at_k([a, a, b])]
    [0.667, 0.667, 1.0]
    """
    n = len(group)
    votes: dict[str, list[bool]] = {}
    for graded in group:
        if graded.vote is not None:
            votes.setdefault(graded.vote, []).append(graded.right)
    sizes = [len(voters) for voters in votes.values()]
    voteless = np.array([comb(n - sum(sizes), j) for j in range(n + 1)], dtype=np.float64)
    total = np.zeros(n + 1)
    for r, voters in enumerate(votes.values()):
        worth = sum(voters) / len(voters)
        if worth > 0.0:
            total += worth * _winning_subsets(sizes[r], sizes[:r] + sizes[r + 1 :], voteless)
    return [float(total[k]) / comb(n, k) for k in range(1, n + 1)]


def _winning_subsets(size: int, others: list[int], voteless: np.ndarray) -> np.ndarray:
    """Count, by subset size, the subsets that a key with ``size`` votes wins; ties count 1/tied."""
    n = len(voteless) - 1
    wins = np.zeros(n + 1)
    for m in range(1, size + 1):
        most_tied = sum(other >= m for other in others)
        counts = np.zeros((n + 1, most_tied + 1))  # [subset size, number of other keys tied]
        counts[m:, 0] = comb(size, m) * voteless[: n + 1 - m]
        for other in others:
            product = np.zeros_like(counts)
            for j in range(min(other, m) + 1):
                term = comb(other, j) * counts[: n + 1 - j]
                if j < m:
                    product[j:] += term
                else:
                    product[j:, 1:] += term[:, :-1]
            counts = product
        wins += counts @ (1.0 / np.arange(1, most_tied + 2))
    return wins


def mean(values: Sequence[float]) -> float:
    """Return the mean, or NaN of nothing."""
    return sum(values) / len(values) if values else math.nan


def mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    """Return the mean of at least one value and its standard error; None: the error of one value.

    >>> mean_and_error([0.25, 0.75])
    (0.5, 0.25)
    """
    return mean(values), standard_error(values) if len(values) > 1 else None


def with_error(values: Sequence[float], *, seed: int = 0) -> dict[str, float]:
    """Return mean (``value``), ``stderr`` and 95 % interval (``low``, ``high``) over problems."""
    low, high = bootstrap_intervals(np.array(values)[:, None], seed=seed)[0]
    return {"value": mean(values), "stderr": standard_error(values), "low": low, "high": high}


# a Codeforces rating from solved problems: the maximum-likelihood Elo

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
