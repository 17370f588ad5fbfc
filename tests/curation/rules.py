"""A rule that the tests of curation name in YAML."""

from __future__ import annotations

from r1lit.batches import Problem


def spell_out(
    problem: Problem, response: str, lose_digits: bool = False, give_up: bool = False
) -> str | None:
    """A rule: think of the problem, then say the response; or spoil it, or give up on sum 0."""
    if give_up and problem.question == "What is 0 + 0?":
        return None
    if lose_digits:
        return "<think> I try </think> So " + "".join(c for c in response if not c.isdigit())
    return f"<think> I try {problem.uid} </think> So {response}"
