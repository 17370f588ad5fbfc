"""The filter that asks a generative judge."""

from __future__ import annotations

from collections.abc import Sequence

from r1lit.batches import Status
from r1lit.curation.base import Filter
from r1lit.curation.candidate import Candidate
from r1lit.verifiers import GenerativeVerifier

UNDECIDED: tuple[Status, ...] = ("unparsed", "error", "timeout")


class JudgedRight(Filter):
    """Keeps what is right by rules, and asks a generative judge where rules did not decide.

    R1, Sec. 2.3.3: "we expand the dataset by incorporating additional data, some of which use a
    generative reward model by feeding the ground-truth and model predictions into DeepSeek-V3 for
    judgment". It takes the place of ``Correct``. Give the verifier a ``cache``: then a run that is
    repeated asks nothing twice and writes the same bytes.

    Args:
        verifier: the judge; it sees question, reference answer and the answer part.
        undecided: verdicts after which it is asked; add "wrong" to ask about wrong answers too.
        kinds: see ``Filter``.
    """

    again = True

    def __init__(
        self,
        verifier: GenerativeVerifier,
        undecided: Sequence[Status] = UNDECIDED,
        kinds: Sequence[str] | None = None,
    ) -> None:
        super().__init__(kinds)
        known = (*UNDECIDED, "wrong")
        if not undecided or any(status not in known for status in undecided):
            raise ValueError(f"undecided: {list(undecided)} is not a list of some of {known}")
        self.verifier = verifier
        self.undecided = tuple(undecided)

    def reasons(self, candidates: Sequence[Candidate]) -> list[str | None]:
        """Ask about those that rules left open, many at a time."""
        rows = [row for row, c in enumerate(candidates) if c.status in self.undecided]
        verdicts = self.verifier.verify_batch(
            [candidates[row].text for row in rows], [candidates[row].problem for row in rows]
        )
        judged = dict(zip(rows, verdicts, strict=True))
        return [
            self._reason(judged[row].status, judged[row].reason)
            if row in judged
            else self._reason(candidate.status, candidate.reason)
            for row, candidate in enumerate(candidates)
        ]

    @staticmethod
    def _reason(status: Status, reason: str) -> str | None:
        return None if status == "right" else f"{status}: {reason}".rstrip(": ")
