"""Verifiers, which decide whether a response answers its problem, and the grader over them."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from r1lit.errors import own_code
from r1lit.problems import Problem, Status, Verdict


class Verifier(ABC):
    """Decides about responses. A verifier never raises on what a model wrote."""

    needs_answer = True
    """Whether ``problem.answer`` decides. False for a verifier that goes by ``problem.meta``."""

    in_background = False
    """Whether it decides in processes of its own and may be called from several threads.

    Such a verifier grades a response while others are still being generated.
    """

    num_workers = 1
    """Responses that it decides about at once; as many threads wait for a rollout's verdicts."""

    left_out: tuple[Status, ...] = ()
    """Statuses that are no fault of a response: training leaves its whole group out."""

    max_left_out = 0.5
    """The share of a rollout's responses that may be so; more end the run."""

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


class Grader:
    """Sends each response to the verifier that ``problem.verifier`` names.

    ``verifiers`` replaces the default, ``default_verifiers()``.

    Args:
        verifiers: by the names that problems give; replaces ``default_verifiers()``.
    """

    def __init__(self, verifiers: Mapping[str, Verifier] | None = None) -> None:
        if verifiers is None:
            from r1lit.verifiers.defaults import default_verifiers  # all of which build on this

            verifiers = default_verifiers()
        self.verifiers = dict(verifiers)

    def verdicts(self, texts: Sequence[str], problems: Sequence[Problem]) -> list[Verdict]:
        """Return one verdict a text, in order, with one ``verify_batch`` call per verifier.

        Raises:
            ValueError: if the lengths differ, a problem names an unknown verifier, or a verifier
                crashes or returns a wrong number of verdicts.
        """
        if len(texts) != len(problems):
            raise ValueError(f"texts: {len(texts)} of them for {len(problems)} problems")
        rows_of: dict[str, list[int]] = {}
        for row, problem in enumerate(problems):
            self.verifier_of(problem)
            rows_of.setdefault(problem.verifier, []).append(row)
        by_row: dict[int, Verdict] = {}
        for name, rows in rows_of.items():
            verifier = self.verifiers[name]
            with own_code(f"verifier {name!r}", verifier):
                verdicts = verifier.verify_batch(
                    [texts[row] for row in rows], [problems[row] for row in rows]
                )
            if len(verdicts) != len(rows):
                raise ValueError(
                    f"verifier: {name!r} returned {len(verdicts)} verdicts for {len(rows)} texts"
                )
            for verdict in verdicts:
                if not isinstance(verdict, Verdict):
                    raise ValueError(
                        f"verifier: {name!r} returned {verdict!r}, not a Verdict(value=…, status=…,"
                        " canonical=…, reason=…)"
                    )
            by_row.update(zip(rows, verdicts, strict=True))
        return [by_row[row] for row in range(len(texts))]

    def verifier_of(self, problem: Problem) -> Verifier:
        """Return the verifier that ``problem`` names.

        Raises:
            ValueError: if there is none of that name.
        """
        if problem.verifier not in self.verifiers:
            raise ValueError(
                f"verifier: problem {problem.uid!r} names {problem.verifier!r}, which is none of"
                f" {sorted(self.verifiers)}"
            )
        return self.verifiers[problem.verifier]

    def close(self) -> None:
        """Release the worker processes of every verifier."""
        for verifier in self.verifiers.values():
            verifier.close()
