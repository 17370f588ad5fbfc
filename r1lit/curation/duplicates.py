"""Filters that compare candidates: duplicates, and the number of responses to a problem."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Literal

from r1lit.curation.base import Context, Filter, check_fraction
from r1lit.curation.candidate import Candidate
from r1lit.curation.grams import digest, gram_numbers, words
from r1lit.errors import check_at_least
from r1lit.seeding import permutation
from r1lit.text.wording import squeezed


def by_problem(candidates: Sequence[Candidate]) -> list[list[int]]:
    """Return the rows of each problem's candidates."""
    rows = groupby(range(len(candidates)), key=lambda row: candidates[row].problem.uid)
    return [list(group) for _, group in rows]


class Dedupe(Filter):
    """Drops responses equal to an earlier one, or nearly equal to one of the same problem.

    R1's reports do not say how they treat duplicates; this is ours. Equal: the same question and
    response, white space aside, anywhere in the run. Nearly equal: two responses to one problem
    whose sets of word n-grams have a Jaccard index (shared / all) of ``jaccard`` or more. A
    response of fewer than n words is one gram.

    Args:
        jaccard: 1 drops the same set of n-grams; None compares no sets.
        n: words of an n-gram.
        kinds: see ``Filter``.
    """

    def __init__(
        self,
        jaccard: float | None = 0.9,
        n: int = 5,
        kinds: Sequence[str] | None = None,
    ) -> None:
        super().__init__(kinds)
        if jaccard is not None:
            check_fraction("jaccard", jaccard)
        check_at_least("n", n, 1)
        self.jaccard = jaccard
        self.n = n
        self._seen: set[int] = set()

    def begin(self, context: Context) -> None:
        """Forget every response."""
        self._seen.clear()

    def reasons(self, candidates: Sequence[Candidate]) -> list[str | None]:
        """Return the drop reason of each candidate that repeats an earlier one."""
        whys: list[str | None] = [None] * len(candidates)
        for rows in by_problem(candidates):
            kept: list[tuple[int, set[int]]] = []
            for row in rows:
                candidate = candidates[row]
                name = digest(squeezed(candidate.problem.question), squeezed(candidate.text))
                if name in self._seen:
                    whys[row] = "an equal response came before"
                    continue
                grams = self._grams(candidate.text) if self.jaccard is not None else set()
                whys[row] = self._near(grams, kept)
                if whys[row] is None:
                    self._seen.add(name)
                    kept.append((candidate.sample, grams))
        return whys

    def _grams(self, text: str) -> set[int]:
        found = words(text)
        return set(gram_numbers(found, min(self.n, max(1, len(found)))).tolist())

    def _near(self, grams: set[int], kept: Sequence[tuple[int, set[int]]]) -> str | None:
        if self.jaccard is None:
            return None
        for sample, others in kept:
            shorter, longer = sorted((len(grams), len(others)))
            if shorter < self.jaccard * longer:  # the index cannot be larger than this ratio
                continue
            shared = len(grams & others)
            index = shared / (len(grams) + len(others) - shared) if longer else 1.0
            if index >= self.jaccard:
                return f"Jaccard index {index:.3f} with sample {sample}"
        return None


class MaxPerProblem(Filter):
    """Keeps at most ``n`` responses to a problem, so that easy problems do not fill the data.

    R1 samples "multiple responses" a prompt (Sec. 2.3.3) and does not say how many it keeps. Which
    ones are kept is a function of the seed and the problem: "random" ones, the "first" samples,
    or the "shortest" or "longest" by tokens, the lower sample on a tie.

    Args:
        n: how many to keep.
        prefer: which ones, "random", "first", "shortest" or "longest".
    """

    def __init__(
        self,
        n: int = 4,
        prefer: Literal["random", "first", "shortest", "longest"] = "random",
        kinds: Sequence[str] | None = None,
    ) -> None:
        super().__init__(kinds)
        check_at_least("n", n, 1)
        self.n = n
        self.prefer = prefer
        self._seed = 0

    def begin(self, context: Context) -> None:
        """Take the seed."""
        self._seed = context.seed

    def reasons(self, candidates: Sequence[Candidate]) -> list[str | None]:
        """Return a drop reason for all but ``n`` candidates of a problem."""
        whys: list[str | None] = [None] * len(candidates)
        for rows in by_problem(candidates):
            if len(rows) <= self.n:
                continue
            for row in self._ranked(candidates, rows)[self.n :]:
                whys[row] = f"{self.n} of {len(rows)} are kept ({self.prefer})"
        return whys

    def _ranked(self, candidates: Sequence[Candidate], rows: list[int]) -> list[int]:
        if self.prefer == "random":
            uid = candidates[rows[0]].problem.uid
            order = permutation(len(rows), self._seed, "max_per_problem", uid)
            return [rows[i] for i in order]
        sign = {"first": 0, "shortest": 1, "longest": -1}[self.prefer]
        return sorted(rows, key=lambda row: (sign * candidates[row].num_tokens, row))
