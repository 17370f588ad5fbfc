"""Choosing one of n responses: by majority, an outcome model, a process model, the truth.

All choose among the same responses, so their tokens are equal.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from experiments.tables import DIFFERENCE, as_markdown, tested_cells
from r1lit.files import Record
from r1lit.metrics import paired_difference, standard_error
from r1lit.seeding import generator

NUM_SUBSETS = 32
OUTCOME = "outcome model"
Choice = Callable[[Sequence[int]], int]
"""Which of some responses, given by their indices."""


def best(scores: Sequence[float]) -> Choice:
    """Choose the largest score, the first among equals."""
    return lambda indices: max(indices, key=lambda i: scores[i])


def vote(answers: Sequence[str | None], weights: Sequence[float]) -> Choice:
    """Choose the answer with the largest sum of weights, in its response of the largest one.

    A response without an answer casts no vote; the first is chosen if none casts any.

    Raises:
        ValueError: if a weight is below 0: more votes would lower an answer.
    """
    if any(weight < 0 for weight in weights):
        raise ValueError(f"weights: {min(weights)} is below 0; vote with probabilities")

    def choose(indices: Sequence[int]) -> int:
        sums: dict[str, float] = defaultdict(float)
        for i in indices:
            if (answer := answers[i]) is not None:
                sums[answer] += weights[i]
        if not sums:
            return indices[0]
        winner = max(sums, key=lambda answer: sums[answer])
        return max((i for i in indices if answers[i] == winner), key=lambda i: weights[i])

    return choose


def accuracies(
    right: Sequence[Sequence[bool]],
    choices: Mapping[str, Sequence[Choice]],
    sizes: Sequence[int],
    seed: int = 0,
) -> list[Record]:
    """Return accuracy and its standard error over problems for each method and n, and ``shares``.

    The shares are by problem: of its subsets, how many led to a right response.

    Args:
        right: whether each response to each problem is.
        choices: a method's choice for each problem.
        sizes: the n; each is the mean over ``NUM_SUBSETS`` subsets of a problem's responses, the
            same for all methods.
        seed: of the subsets.
    """
    rows = []
    for n in sizes:
        subsets = [
            [generator(seed, "subset", p, s).permutation(len(own))[:n].tolist()
             for s in range(NUM_SUBSETS)]
            for p, own in enumerate(right)
        ]  # fmt: skip
        for name, chosen in choices.items():
            share_P = np.array(
                [
                    np.mean([right[p][chosen[p](subset)] for subset in subsets[p]])
                    for p in range(len(right))
                ]
            )
            rows.append(
                {
                    "method": name,
                    "n": n,
                    "accuracy": float(share_P.mean()),
                    "stderr": float(standard_error(share_P.tolist())),
                    "shares": share_P.tolist(),
                }
            )
    return rows


def as_table(rows: Sequence[Record]) -> str:
    """Return methods by n as Markdown."""
    sizes = sorted({row["n"] for row in rows})
    names = list(dict.fromkeys(row["method"] for row in rows))
    cell = {(r["method"], r["n"]): f"{r['accuracy']:.3f} ± {r['stderr']:.3f}" for r in rows}
    by_method = [[name, *(cell[name, n] for n in sizes)] for name in names]
    return as_markdown(["chosen by", *(f"n = {n}" for n in sizes)], by_method)


def mean_over_models(rows: Sequence[Record]) -> Record:
    """Return the mean of one method and n over the models' seeds, which chose among the same."""
    shares = np.mean([row["shares"] for row in rows], axis=0).tolist()
    stderr = float(standard_error(shares))
    return {**rows[0], "accuracy": float(np.mean(shares)), "stderr": stderr, "shares": shares}


def paired_table(rows: Sequence[Record], against: str) -> str:
    """Return the differences of each method from another, paired by problem, at the largest n."""
    n = max(row["n"] for row in rows)
    shares = {row["method"]: row["shares"] for row in rows if row["n"] == n}
    found = {
        m: paired_difference(own, shares[against]) for m, own in shares.items() if m != against
    }
    tested = zip(found, tested_cells(list(found.values())), strict=True)
    cells = [[method, *own] for method, own in tested]
    return as_markdown([f"less {against}, n = {n}", *DIFFERENCE], cells)
