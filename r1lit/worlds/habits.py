"""How authors search: in one order, for a while, and with a glance where a calculation is due.

Nobody computes an attempt at first: it is judged by its value to the nearest five. What then seems
to reach the target often does not, which a check finds, since it computes the value. Whoever does
not check answers with what seems right.

Effort is a habit: after each failed attempt an author goes on with a chance of his own, and nobody
goes on for long. Who has just refused what seemed right always goes on: a check that is followed by
giving up would not pay. And a check begins with a comma, as going on does: where it began with a
full stop, as giving up does, reinforcement learning unlearnt both together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from r1lit.worlds.countdown import Step
from r1lit.worlds.long_search import Place
from r1lit.worlds.writing import ENGLISH, pick, weighted

GO_ON = (11.0, 9.0)
"""Beta distribution over the authors: a mean of 0.55."""
CHECK_COUNT = 8.0
"""Of the Beta distribution of checking: the sum of its parameters."""
SLIP_RATE = 0.02
OPENINGS = ("", "", "let me try", "let me think", "i look for")
SWITCHES = (("", 0.5), ("but", 0.2), ("however", 0.2), ("try", 0.1))
CHECKS = (("wait", 0.4), ("verify", 0.3), ("check", 0.3))


@dataclass(frozen=True, kw_only=True)
class Habits:
    """An author: the chance to ``go_on`` after a failure, and to ``check`` what seems right."""

    go_on: float
    check: float


@dataclass(frozen=True, kw_only=True)
class Authors:
    """Who writes: a share ``patient`` never gives up, and ``check`` is what they check in the mean.

    The shipped base has read the authors of the defaults.
    """

    patient: float = 0.0
    check: float = 0.25

    @property
    def check_beta(self) -> tuple[float, float]:
        """The Beta distribution of checking.

        >>> Authors().check_beta
        (2.0, 6.0)
        """
        return CHECK_COUNT * self.check, CHECK_COUNT * (1 - self.check)

    def draw(self, rng: np.random.Generator) -> Habits:
        """Draw an author."""
        go_on, check = float(rng.beta(*GO_ON)), float(rng.beta(*self.check_beta))
        is_patient = self.patient and rng.random() < self.patient
        return Habits(go_on=1.0 if is_patient else go_on, check=check)


@dataclass(frozen=True, kw_only=True)
class Post:
    """What one author wrote of a search.

    ``claimed`` is the place that the author answers with, rightly or not; ``None`` gave up.
    ``stop`` is the place at which somebody else would go on, counted on over repeated searches.
    """

    text: str
    stop: int
    claimed: Place | None


def about(value: int) -> int:
    """Return ``value`` to the nearest five.

    >>> [about(n) for n in (2, 3, 7, 8)]
    [0, 5, 5, 10]
    """
    return (value + 2) // 5 * 5


def write(
    search: Sequence[Place],
    target: int,
    habits: Habits,
    rng: np.random.Generator,
    *,
    start: int = 0,
    doubted: Place | None = None,
) -> Post:
    """Write what one author does: from place ``start`` until something is claimed or given up.

    Whoever comes to the end begins again, since the solution must have been overlooked.

    Args:
        search: every place, in the order of the search.
        target: of the problem.
        habits: of the author.
        rng: of the text.
        start: the place to begin at.
        doubted: what somebody else claimed wrongly, which the author checks first.
    """
    if doubted:
        text = f"{checked(doubted.attempt.second, target, rng)}. "
    else:
        text = ENGLISH.say(pick(rng, OPENINGS), rng).format(target=target)
    at, last = start, None
    while True:
        place = search[at % len(search)]
        again = at > 0 and at % len(search) == 0
        if last and not again and place.same_branch(last):
            text += ", "
        else:
            text += ". " if last else ""
            if again:
                text += ENGLISH.say("retry", rng)
            elif last:
                text += ENGLISH.say(weighted(rng, SWITCHES), rng)
            text += f"{branch(place)}: "
        verdict, line = judge(place.attempt.second, target, habits, rng)
        text += line
        at, last = at + 1, place
        if verdict == "claimed":
            return Post(text=text, stop=at, claimed=place)
        if verdict == "failed" and rng.random() >= habits.go_on:
            return Post(text=text + ENGLISH.say("give up", rng), stop=at, claimed=None)


def branch(place: Place) -> str:
    """Write a first step and the number that it leaves over.

    It holds all three numbers, so that where the search stands can be read close by.
    """
    first = place.attempt.first
    left = list(place.numbers)
    left.remove(first.left)
    left.remove(first.right)
    return f"{first}, {left[0]}"


def judge(
    second: Step, target: int, habits: Habits, rng: np.random.Generator
) -> tuple[Literal["claimed", "refused", "failed"], str]:
    """Return what becomes of an attempt, and what is written of it.

    It is refused if it seems right and a check says that it is not.
    """
    value = about(second.result)
    if rng.random() < SLIP_RATE:
        value = max(0, value + (5 if rng.random() < 0.5 else -5))
    line = f"{second.left} {second.operation} {second.right} ~ {value}"
    if value != about(target):
        return "failed", f"{line} {'<' if value < about(target) else '>'} {target}"
    line += f" ~ {target}"
    if rng.random() >= habits.check:
        return "claimed", f"{line}, yes."
    said = checked(second, target, rng)
    line += f", {said[0].lower()}{said[1:]}"
    return ("claimed", f"{line}, yes.") if second.result == target else ("refused", line)


def checked(second: Step, target: int, rng: np.random.Generator) -> str:
    """Write a check: the exact value of an attempt, and how it compares with the target."""
    text = f"{ENGLISH.say(weighted(rng, CHECKS), rng)}{second}"
    if second.result == target:
        return text
    return f"{text} {'<' if second.result < target else '>'} {target}"
