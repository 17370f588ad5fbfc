"""Readings of responses: attempts, their order, arithmetic, checks, and the ending.

An attempt is known by the operands of its first step and by both operators, so a wrong result is a
wrong computation and no other attempt. The order is the author's (`experiments.real_aha.traces`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from experiments.real_aha.traces import FILLER, Arm
from r1lit.verifiers.countdown import decide_expression
from r1lit.worlds.countdown import Attempt
from r1lit.worlds.search_corpus import Place, places

OPERATION = r"\d+[-+*]\d+=\d+"
TRIED = rf"{OPERATION}(?:,{OPERATION})*"
BRANCH = rf"{OPERATION},\d+ left:{TRIED}"
SEARCH = rf"(?:{BRANCH}|{TRIED})(?:\. {BRANCH})*"
EXPRESSION = r"[-+*()\d]+"
CHECKED = rf"Check: {EXPRESSION}=\d+[-+*]\d+=\d+\.\n<answer>{EXPRESSION}</answer>"
ENDS = rf"(?:\. {CHECKED}|[.,] I give up\.)"
WORDS = rf"(?:{'|'.join(sorted(set(FILLER.split())))})"
FORMS: dict[Arm, re.Pattern[str]] = {
    "search": re.compile(SEARCH + ENDS),
    "filler": re.compile(rf"{WORDS}(?: {WORDS})*{ENDS}"),
    "direct": re.compile(CHECKED),
    "wrong": re.compile(SEARCH + ENDS),
    "solved": re.compile(SEARCH + ENDS),
}
_STEP = re.compile(r"(\d+)([-+*])(\d+)=(\d+)(?:,(\d+) left:)?")
_CHAIN = re.compile(rf"Check: ({EXPRESSION}(?:={EXPRESSION})+)")
Key = tuple[tuple[int, int], str, str]
"""Operands of the first step, larger first, and the operators of both steps."""


@dataclass(kw_only=True)
class Reading:
    """The counts of one response.

    ``skipped`` are attempts out of the author's order that are new; ``repeated`` were made before,
    in this response or in the user's turn. ``wrong`` of ``computations`` have a false result or
    numbers that are not there. ``checks_failed`` are checks whose value is not the target.
    ``false_hits`` are attempts just before a check that give the target by a false result;
    ``false_hits_found`` those whose check fails.
    """

    attempts: int = 0
    repeated: int = 0
    skipped: int = 0
    computations: int = 0
    wrong: int = 0
    checks: int = 0
    checks_failed: int = 0
    false_hits: int = 0
    false_hits_found: int = 0
    well_formed: bool = False
    gave_up: bool = False
    answered: bool = False
    order: list[int] = field(default_factory=list)
    """Places of the attempts in the author's order, -1 for one that is not in it."""

    @property
    def is_clean(self) -> bool:
        """Whether no fault of any kind was read."""
        return self.well_formed and not (self.repeated or self.skipped or self.wrong)


def read(
    text: str, numbers: Sequence[int], target: int, start: int = 0, arm: Arm = "search"
) -> Reading:
    """Read a response.

    Args:
        text: of the response, without its end-of-sequence token.
        numbers: of the problem, in the question's order; three, or four of which three are used.
        target: of the problem.
        start: attempts that stand in the user's turn.
        arm: whose form the response should have.

    >>> own = read("3+4=7,9 left:7+9=16,7*9=62. I give up.", (3, 4, 9), 63)
    >>> own.attempts, own.skipped, own.wrong, own.computations, own.gave_up
    (2, 1, 1, 3, True)
    """
    search = places(tuple(numbers))
    parts = re.split(r"(?=Check:)", text)
    found = Reading(
        well_formed=FORMS[arm].fullmatch(text) is not None,
        gave_up="give up" in text,
        answered=re.search(r"<answer>[^<]*</answer>", text) is not None,
    )
    _read_search("".join(_CHAIN.sub("", part) for part in parts), search, start, found)
    for before, check in pairwise(parts):
        failed = _read_check(check, target, found)
        if _is_false_hit(_CHAIN.sub("", before), target):
            found.false_hits += 1
            found.false_hits_found += failed
    return found


def _is_false_hit(searched: str, target: int) -> bool:
    """Return whether the last attempt of a search gives the target by a false result."""
    steps = [match for match in _STEP.finditer(searched) if not match[5]]
    if not steps or int(steps[-1][4]) != target:
        return False
    last = steps[-1]
    return _value(int(last[1]), last[2], int(last[3])) != target


def _read_search(body: str, search: Sequence[Place], start: int, found: Reading) -> None:
    at = {_key(place.attempt): i for i, place in reversed([*enumerate(search)])}
    seen, expected = set(range(start)), start
    first, left = _branch(search[start - 1]) if start else (None, 0)
    for match in _STEP.finditer(body):
        a, sign, b, result = int(match[1]), match[2], int(match[3]), int(match[4])
        found.computations += 1
        wrong = _value(a, sign, b) != result
        if match[5]:
            first, left = (a, sign, b, result), int(match[5])
            found.wrong += wrong or not _are_there((a, b, left), search)
            continue
        found.attempts += 1
        there = first is not None and sorted((a, b)) == sorted((first[3], left))
        found.wrong += wrong or not there
        place = -1
        if first is not None:
            place = at.get(((max(first[0], first[2]), min(first[0], first[2])), first[1], sign), -1)
        found.order.append(place)
        if place in seen:
            found.repeated += 1
        elif place != expected:
            found.skipped += 1
        if place >= 0:
            seen.add(place)
            expected = max(expected, place + 1) if place >= expected else expected


def _branch(place: Place) -> tuple[tuple[int, str, int, int], int]:
    first = place.attempt.first
    return (first.left, first.operation, first.right, first.result), place.left_over


def _key(attempt: Attempt) -> Key:
    first = attempt.first
    return (first.left, first.right), first.operation, attempt.second.operation


def _are_there(used: tuple[int, int, int], search: Sequence[Place]) -> bool:
    return any(sorted(used) == sorted(place.numbers) for place in search)


def _value(a: int, sign: str, b: int) -> int:
    return a + b if sign == "+" else a - b if sign == "-" else a * b


def _read_check(check: str, target: int, found: Reading) -> bool:
    """Count a check, each side after the first as a computation; return whether it fails."""
    found.checks += 1
    chain = _CHAIN.match(check)
    if chain is None:
        return False
    values = [_value_of(side) for side in chain[1].split("=")]
    found.computations += len(values) - 1
    found.wrong += sum(value != values[0] or value is None for value in values[1:])
    failed = values[-1] != str(target)
    found.checks_failed += failed
    return failed


def _value_of(side: str) -> str | None:
    """Return the value of an expression as text; None for one that cannot be read."""
    return decide_expression(side, [int(n) for n in re.findall(r"\d+", side)], target=0)[1]
