"""What is true of a step in Countdown's searches: may it still lead to the answer?

A search never tries a first step twice. So it can still succeed as long as nothing it has written
is false, the only solution is not left behind, and it has not given up.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from r1lit.batches import Problem
from r1lit.verifiers.countdown import CountdownVerifier
from r1lit.worlds.countdown import OPERATIONS, Step, step
from r1lit.worlds.voice import PHRASES

SEPARATORS = (".", "。")
"""What ends a step of a search: a first operation with all that is tried under it, or a remark."""

_EQUATION = re.compile(r"(\d+) ([-+*/]) (\d+) = (\d+)(:)?(?: ([<>]) (\d+))?")
_GIVEN_UP = tuple(phrase.strip(" .。") for key in ("give up", "guess") for phrase in PHRASES[key])


def first_wrong_step(problem: Problem, steps: Sequence[str]) -> int:
    """Return the index of the first step that can no longer lead to the answer, -1 for none.

    Wrong is a step with a false equation or comparison or numbers that are not there, one that
    leaves out the solution under the operation it begins with, that gives up, or that holds a wrong
    answer. A guess that happens to be right does not mend a search that was given up.

    Args:
        problem: of ``WorldCountdown``.
        steps: of a response, cut at ``SEPARATORS``; joined, they are the response.
    """
    return next((i for i, text in enumerate(steps) if not _may_lead_on(problem, text)), -1)


def _may_lead_on(problem: Problem, text: str) -> bool:
    if any(phrase in text for phrase in _GIVEN_UP):
        return False
    if "</answer>" in text:
        return CountdownVerifier().verify(text, problem).status == "right"
    target = int(problem.meta["target"])
    first, seconds = None, []
    for a, operation, b, result, colon, sign, compared in _EQUATION.findall(text):
        made = step(int(a), operation, int(b))
        if made is None or made.result != int(result) or (operation in "-/" and int(a) < int(b)):
            return False
        if sign and (int(compared), sign) != (target, _sign(made.result, target)):
            return False
        if colon:
            first = made
        else:
            seconds.append(made)
    return first is None or _is_whole(first, seconds, problem, text)


def _sign(result: int, target: int) -> str:
    return "<" if result < target else ">" if result > target else "="


def _is_whole(first: Step, seconds: list[Step], problem: Problem, text: str) -> bool:
    """Return whether numbers are the given ones, and the target is found where it can be."""
    left = Counter(problem.meta["numbers"]) - Counter((first.left, first.right))
    if left.total() != 1:
        return False
    third = next(iter(left))
    if any(sorted((s.left, s.right)) != sorted((first.result, third)) for s in seconds):
        return False
    could = {s.result for op in OPERATIONS if (s := step(first.result, op, third))}
    missed = problem.meta["target"] in could - {s.result for s in seconds}
    return not (missed and text.rstrip().endswith(SEPARATORS))  # else it is cut, and may go on
