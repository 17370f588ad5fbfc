"""The filter that keeps evaluation problems out of the training data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from r1lit.curation.base import Context, Filter, check_fraction
from r1lit.curation.candidate import Candidate
from r1lit.curation.grams import gram_numbers, words
from r1lit.data.base import ProblemSource
from r1lit.errors import check_at_least

LEAST_FOR_WORDING = 10


class Decontaminate(Filter):
    """Drops candidates that share any 10-gram with an evaluation problem.

    R1's supplement decontaminates its data by 10-grams. Made exact here: 10 consecutive words (as
    in `r1lit.curation.grams`: runs of letters and digits, single Han characters, lower case, no
    marks) that stand in an evaluation problem's question, or in its gold answer, and in the
    candidate's question or response. A question of fewer than 10 words has no 10-gram; the
    candidate's question may not have the same words then.

    The wording that a benchmark puts around its problems is no content: n-grams that stand in more
    than ``wording_share`` of the questions of one source (from 10 questions on) are left out.

    Args:
        evaluations: what may not be in the data, as in ``data.test``.
        n: words of an n-gram.
        wording_share: 1 leaves nothing out.
        kinds: see ``Filter``.
    """

    again = True

    def __init__(
        self,
        evaluations: list[ProblemSource],
        n: int = 10,
        wording_share: float = 0.5,
        kinds: Sequence[str] | None = None,
    ) -> None:
        super().__init__(kinds)
        if not evaluations:
            raise ValueError("evaluations: no source is given, so nothing would be kept out")
        check_at_least("n", n, 2)
        check_fraction("wording_share", wording_share)
        self.evaluations = evaluations
        self.n = n
        self.wording_share = wording_share
        self._grams: np.ndarray | None = None
        self._of: dict[int, str] = {}
        self._short: dict[tuple[str, ...], str] = {}
        self._known_question: tuple[str, str | None] | None = None

    def begin(self, context: Context) -> None:
        """Build the index, once."""
        if self._grams is None:
            for source in self.evaluations:
                self._add(source)
            self._grams = np.sort(np.fromiter(self._of, dtype=np.uint64, count=len(self._of)))

    def _add(self, source: ProblemSource) -> None:
        problems = source.problems()
        in_question: list[tuple[str, list[int]]] = []
        for problem in problems:
            found = words(problem.question)
            if len(found) < self.n:
                self._short.setdefault(tuple(found), problem.uid)
            in_question.append((problem.uid, self._unique(found)))
        counts = Counter(gram for _, grams in in_question for gram in grams)
        most = self.wording_share * len(problems)
        if len(problems) < LEAST_FOR_WORDING:
            most = len(problems)
        for uid, grams in in_question:
            for gram in grams:
                if counts[gram] <= most:
                    self._of.setdefault(gram, uid)
        for problem in problems:
            for gram in self._unique(words(problem.answer)):
                self._of.setdefault(gram, problem.uid)

    def _unique(self, found: list[str]) -> list[int]:
        return list(dict.fromkeys(gram_numbers(found, self.n).tolist()))

    def reason(self, candidate: Candidate) -> str | None:
        """Return the shared words and the uid of the evaluation problem."""
        known = self._known_question
        if known is None or known[0] != candidate.problem.question:
            known = (candidate.problem.question, self._in_question(candidate.problem.question))
            self._known_question = known
        return known[1] or self._shared(words(candidate.text), "response")

    def _in_question(self, question: str) -> str | None:
        found = words(question)
        short = self._short.get(tuple(found))
        if short is not None:
            return f"the question of {short}"
        return self._shared(found, "question")

    def _shared(self, found: list[str], where: str) -> str | None:
        assert self._grams is not None, "begin comes first"
        grams = gram_numbers(found, self.n)
        if not len(grams) or not len(self._grams):
            return None
        places = np.searchsorted(self._grams, grams).clip(max=len(self._grams) - 1)
        hits = np.flatnonzero(self._grams[places] == grams)
        if not len(hits):
            return None
        first = int(hits[0])
        shared = " ".join(found[first : first + self.n])
        return f"the {where} shares “{shared}” with {self._of[int(grams[first])]}"
