"""Problems whose required work spans two orders of magnitude: 1 to 95 attempts.

Countdown with three numbers, or with three of four, searched with + - * in one order that the
question gives: threes of numbers and pairs come as they stand in it. So how many attempts a problem
needs is a property of the problem, and where a search stands can be read from its last attempt.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from r1lit.batches import Problem
from r1lit.data.sources import ProblemSource
from r1lit.errors import check_at_least
from r1lit.seeding import generator, permutation
from r1lit.worlds.countdown import (
    MIN_TARGET,
    Attempt,
    branches,
    number_sets,
)
from r1lit.worlds.countdown import question as question_of_three
from r1lit.worlds.splits import Split, check_split

LEVELS = ((1, 2), (3, 5), (6, 11), (12, 23), (24, 47), (48, 95))
"""Levels of difficulty: the fewest and the most attempts that a problem needs."""
SIZES = (3, 4)
OPERATIONS = "+-*"
"""Without division: whether it applies would decide at each first step which one is next."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a search stands: at an attempt, with three of the numbers."""

    numbers: tuple[int, ...]
    attempt: Attempt

    def same_branch(self, other: Place) -> bool:
        """Return whether both attempts follow from one first step."""
        return self.numbers == other.numbers and self.attempt.first == other.attempt.first


def places(numbers: tuple[int, ...]) -> list[Place]:
    """Return a whole search with three or four numbers, in its order."""
    threes = dict.fromkeys(combinations(numbers, 3))
    return [
        Place(numbers=three, attempt=attempt)
        for three in threes
        for _, attempts in branches(three, operations=OPERATIONS)
        for attempt in attempts
    ]


def needed_attempts(search: list[Place]) -> dict[int, int]:
    """Return the attempts that each target needs: up to the first one that reaches it."""
    needed: dict[int, int] = {}
    for index, place in enumerate(search):
        needed.setdefault(place.attempt.second.result, index + 1)
    return needed


def question(numbers: tuple[int, ...], target: int) -> str:
    """Return a problem in words."""
    if len(numbers) == 3:
        return question_of_three(numbers, target)
    *others, last = numbers
    return f"Using three of {', '.join(map(str, others))} and {last}, make {target}."


def level_of(attempts: int) -> str:
    """Return the name of a level: ``attempts 12-23``."""
    low, high = next((low, high) for low, high in LEVELS if low <= attempts <= high)
    return f"attempts {low}-{high}"


@dataclass(frozen=True, kw_only=True)
class SearchProblem:
    """Numbers in the order of the question, the target, and the attempts that it needs."""

    numbers: tuple[int, ...]
    target: int
    attempts: int


def search_problems(split: Split, size: int, seed: int = 0) -> Iterator[SearchProblem]:
    """Yield every problem of ``split`` with ``size`` numbers, each set in one random order.

    Targets are 10 or more, not given themselves, and need at most the attempts of the last level.
    """
    for numbers in number_sets(split, size):
        order = generator(seed, "order", *numbers).permutation(size)
        shown = tuple(numbers[i] for i in order)
        for target, attempts in needed_attempts(places(shown)).items():
            if target >= MIN_TARGET and target not in numbers and attempts <= LEVELS[-1][1]:
                yield SearchProblem(numbers=shown, target=target, attempts=attempts)


class WorldSearch(ProblemSource):
    """Searches of every level of difficulty, as many of each.

    ``meta["kind"]`` is a problem's level, ``attempts 12-23`` say, so that an evaluation reports
    accuracy by level; its uid ends with the attempts themselves. Sets of three numbers are split as
    Countdown's; sets of four are split too, but may hold a three of another split.

    Args:
        split: corpus, train or held_out.
        num_problems: how many.
        seed: of the sample, and of the order of each problem's numbers.
        max_attempts: leaves out levels that begin above it, and problems that need more.
    """

    def __init__(
        self,
        split: Split = "train",
        num_problems: int = 384,
        seed: int = 0,
        max_attempts: int = LEVELS[-1][1],
    ) -> None:
        check_split(split)
        check_at_least("num_problems", num_problems, 1)
        check_at_least("max_attempts", max_attempts, 1)
        self.split = split
        self.num_problems = num_problems
        self.seed = seed
        self.max_attempts = max_attempts

    def problems(self) -> list[Problem]:
        """Return the problems, level after level in turn, without repetition.

        Raises:
            ValueError: if a level holds too few.
        """
        pools: dict[str, dict[int, list[SearchProblem]]] = {}
        for size in SIZES:
            for found in search_problems(self.split, size, self.seed):
                if found.attempts <= self.max_attempts:
                    level = pools.setdefault(level_of(found.attempts), {})
                    level.setdefault(size, []).append(found)
        levels = [self._in_turn(name, pools[name]) for name in sorted(pools, key=_first_attempts)]
        most = min(map(len, levels)) * len(levels)
        if self.num_problems > most:
            raise ValueError(
                f"num_problems: {self.num_problems} is more than {most}, since a level of split"
                f" {self.split!r} has {most // len(levels)} problems"
            )
        return [
            _problem(levels[i % len(levels)][i // len(levels)]) for i in range(self.num_problems)
        ]

    def _in_turn(self, name: str, pool: dict[int, list[SearchProblem]]) -> list[SearchProblem]:
        """Return a level's problems: with three and with four numbers by turns while both last."""
        shuffled = [
            [own[i] for i in permutation(len(own), self.seed, self.split, name, size)]
            for size, own in pool.items()
        ]
        return [own[i] for i in range(max(map(len, shuffled))) for own in shuffled if i < len(own)]


def _first_attempts(level: str) -> int:
    return int(level.removeprefix("attempts ").split("-")[0])


def _problem(found: SearchProblem) -> Problem:
    numbers = "-".join(map(str, found.numbers))
    solution = next(
        place.attempt.expression
        for place in places(found.numbers)
        if place.attempt.second.result == found.target
    )
    return Problem(
        uid=f"search-{numbers}-{found.target}-at-{found.attempts}",
        question=question(found.numbers, found.target),
        answer=solution,
        source="search",
        verifier="countdown",
        meta={
            "numbers": list(found.numbers),
            "num_used": 3,
            "target": found.target,
            "attempts": found.attempts,
            "kind": level_of(found.attempts),
            "language": "en",
        },
    )
