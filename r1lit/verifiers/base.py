"""The interface of verifiers, which decide whether a response answers its problem."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence

from r1lit.problems import Problem, Status, Verdict


class Verifier(ABC):
    """Decides about responses. A verifier never raises on what a model wrote."""

    needs_answer = True
    """Whether ``problem.answer`` decides. False for a verifier that goes by ``problem.meta``."""

    in_background = False
    """Whether it decides in processes of its own and may be called from several threads.

    Such a verifier grades a response while others are still being generated.
    """

    max_words: float = float("inf")
    """Words a gold answer may have; more show that another text was taken for it."""

    def gold_text(self, problem: Problem) -> str:
        """Return what a right response would have between its answer tags."""
        return problem.answer

    def check(self) -> None:  # noqa: B027 - most need nothing
        """Check that what it needs is there.

        Raises:
            ImportError: if a package is missing.
            ValueError: if something else is, such as a compiler.
        """

    @abstractmethod
    def verify(self, response: str, problem: Problem) -> Verdict:
        """Decide about one response."""

    def verify_batch(self, responses: Sequence[str], problems: Sequence[Problem]) -> list[Verdict]:
        """Decide about many responses, in order; ``problems`` are aligned with ``responses``."""
        return [self.verify(r, p) for r, p in zip(responses, problems, strict=True)]

    def close(self) -> None:  # noqa: B027 - most have nothing to release
        """Release worker processes, if any."""


def conclude(status: Status, canonical: str | None, reason: str, start: float) -> Verdict:
    """Return a verdict whose value is 1 if it is right, else 0.

    ``start`` is the reading of ``time.perf_counter`` when the decision began.
    """
    return Verdict(
        value=float(status == "right"),
        status=status,
        canonical=canonical,
        reason=reason,
        seconds=time.perf_counter() - start,
    )


class NoVerifier(Verifier):
    """Decides nothing: every response is ``unparsed``, never right, and casts no vote.

    For general prompts, whose reward comes from a reward model and not from an answer.
    """

    needs_answer = False

    def verify(self, response: str, problem: Problem) -> Verdict:
        """Return the verdict that there is none."""
        return conclude("unparsed", None, "no rule decides about this problem", time.perf_counter())
