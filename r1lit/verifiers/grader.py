"""Grading responses to problems of several kinds together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from r1lit.errors import own_code
from r1lit.problems import Problem, Verdict
from r1lit.verifiers.base import Verifier
from r1lit.verifiers.choice import ChoiceVerifier
from r1lit.verifiers.code import FunctionalCodeVerifier, StdinCodeVerifier
from r1lit.verifiers.countdown import CountdownVerifier
from r1lit.verifiers.exact import ExactVerifier
from r1lit.verifiers.game24 import Game24Verifier
from r1lit.verifiers.ifeval import IFEvalVerifier
from r1lit.verifiers.logic import LogicVerifier
from r1lit.verifiers.mathematics import MathVerifier
from r1lit.verifiers.none import NoVerifier


def default_verifiers(last_expression: bool = False) -> dict[str, Verifier]:
    """Return every verifier by the name that problems give. None starts a process until used.

    With ``last_expression``, ``math`` reads responses that have no ``<answer>`` and no box at their
    end: for scoring, not for training.
    """
    return {
        "choice": ChoiceVerifier(),
        "countdown": CountdownVerifier(),
        "exact": ExactVerifier(),
        "functional_code": FunctionalCodeVerifier(),
        "game24": Game24Verifier(),
        "ifeval_loose": IFEvalVerifier(loose=True),
        "ifeval_strict": IFEvalVerifier(),
        "logic": LogicVerifier(),
        "math": MathVerifier(last_expression=last_expression),
        "none": NoVerifier(),
        "stdin_code": StdinCodeVerifier(),
    }


class Grader:
    """Sends each response to the verifier that ``problem.verifier`` names.

    ``verifiers`` replaces the default, ``default_verifiers()``.

    Args:
        verifiers: by the names that problems give; replaces ``default_verifiers()``.
    """

    def __init__(self, verifiers: Mapping[str, Verifier] | None = None) -> None:
        self.verifiers = dict(default_verifiers() if verifiers is None else verifiers)

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
