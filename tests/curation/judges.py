"""Judges and rules that the tests of curation name in YAML."""

from __future__ import annotations

from r1lit.batches import Problem, Verdict
from r1lit.verifiers import Judge, Verifier


class Digits(Verifier):
    """Right if the response holds a digit: a random policy is, now and then."""

    needs_answer = False

    def verify(self, response: str, problem: Problem) -> Verdict:
        right = any(c.isdigit() for c in response)
        return Verdict(
            value=float(right),
            status="right" if right else "wrong",
            canonical=None,
            reason="" if right else "no digit",
        )


class DigitJudge(Judge):
    """Judges everything by ``Digits``."""

    def __init__(self) -> None:
        super().__init__({"math": Digits()})


def spell_out(
    problem: Problem, response: str, lose_digits: bool = False, give_up: bool = False
) -> str | None:
    """A rule: think of the problem, then say the response; or spoil it, or give up on sum 0."""
    if give_up and problem.question == "What is 0 + 0?":
        return None
    if lose_digits:
        return "<think> I try </think> So " + "".join(c for c in response if not c.isdigit())
    return f"<think> I try {problem.uid} </think> So {response}"
