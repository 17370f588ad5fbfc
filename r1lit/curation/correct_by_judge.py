"""The filter that queries a generative verifier, an LLM judge."""

from __future__ import annotations

from collections.abc import Sequence

from r1lit.batches import Status
from r1lit.curation.base import Filter
from r1lit.curation.candidate import Candidate
from r1lit.curation.filters import why_not_right
from r1lit.verifiers import GenerativeVerifier

OPEN_STATUSES: tuple[Status, ...] = ("unparsed", "error", "timeout")


class CorrectByJudge(Filter):
    """Keeps right responses; queries an LLM judge on those that rules did not decide.

    R1, Sec. 2.3.3: "we expand the dataset by incorporating additional data, some of which use a
    generative reward model by feeding the ground-truth and model predictions into DeepSeek-V3 for
    judgment". Use it instead of ``Correct``. Give the verifier a ``cache``: then a repeated run
    sends no request twice and writes the same bytes.

    Args:
        verifier: the judge; it gets the question, the gold answer and the answer part.
        undecided: the statuses that it judges; add "wrong" to have wrong answers judged too.
        kinds: see ``Filter``.
    """

    again = True

    def __init__(
        self,
        verifier: GenerativeVerifier,
        undecided: Sequence[Status] = OPEN_STATUSES,
        kinds: Sequence[str] | None = None,
    ) -> None:
        super().__init__(kinds)
        known = (*OPEN_STATUSES, "wrong")
        if not undecided or any(status not in known for status in undecided):
            raise ValueError(f"undecided: {list(undecided)} is not a list of some of {known}")
        self.verifier = verifier
        self.undecided = tuple(undecided)

    def reasons(self, candidates: Sequence[Candidate]) -> list[str | None]:
        """Return why each is not right, after one batch of queries about the undecided ones."""
        rows = [row for row, c in enumerate(candidates) if c.status in self.undecided]
        verdicts = self.verifier.verify_batch(
            [candidates[row].text for row in rows], [candidates[row].problem for row in rows]
        )
        verdict_by_row = dict(zip(rows, verdicts, strict=True))
        return [
            why_not_right(verdict_by_row.get(row, candidate))
            for row, candidate in enumerate(candidates)
        ]
