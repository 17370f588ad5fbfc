"""cons@k: the chance that k responses elect a right answer by majority vote.

R1 reports cons@64 (v1) and cons@16 (Nature, Fig. 1a): the answer most of k responses agree on is
taken, and the problem counts as solved when it is right. What the paper leaves open is fixed here:

- Responses vote under their verdict's canonical key; ``None`` casts no vote, and k responses
  without a vote elect nothing: 0.
- A tie is broken at random among the tied keys; its value is the expectation, the share of the
  tied keys that are right. No generator is involved.
- For k below the n samples drawn, the value is the expectation over all C(n, k) subsets of the
  samples, exactly (not over a sample of subsets), so it does not depend on their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

import numpy as np

from r1lit.batches import Verdict


def cons_at_k(verdicts: Sequence[Verdict]) -> list[float]:
    """Return cons@k for k = 1..n of one group of n verdicts, as a list of n numbers.

    A key is worth the share of its voters that are right, which is 0 or 1 when a verifier judges
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

    >>> from r1lit.batches import Verdict
    >>> a = Verdict(value=1.0, status="right", canonical="a", reason="")
    >>> b = Verdict(value=0.0, status="wrong", canonical="b", reason="")
    >>> [round(value, 3) for value in cons_at_k([a, a, b])]
    [0.667, 0.667, 1.0]
    """
    n = len(verdicts)
    votes: dict[str, list[float]] = {}
    for verdict in verdicts:
        if verdict.canonical is not None:
            votes.setdefault(verdict.canonical, []).append(verdict.value)
    sizes = [len(values) for values in votes.values()]
    voteless = np.array([comb(n - sum(sizes), j) for j in range(n + 1)], dtype=np.float64)
    total = np.zeros(n + 1)
    for r, values in enumerate(votes.values()):
        worth = sum(values) / len(values)
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
