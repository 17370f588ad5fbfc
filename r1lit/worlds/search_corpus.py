"""Long searches: problems of 1 to 95 attempts, and the corpus of their base (``earned_length``).

A problem is Countdown with three numbers, or with three of four. It is searched with + - * in one
order, which the question fixes: triples and pairs of numbers come in the order of the question. So
the number of attempts is a property of the problem, and the last attempt shows where a search is.

The corpus has responses in R1-Zero's template by authors who give up early and rarely verify. It
also has forum threads, in which one author continues another's search, and separate first steps,
verifications and arithmetic. So the base has seen every stage of a search, also far from the
question, but no author who makes a long one. No document has a held-out or an RL problem. But a
document with four numbers may solve a problem with three of them on the way (`WorldSearch`).

An author first estimates the value of an attempt, to the nearest five. An attempt that seems to
reach the target often does not: a near miss. A verification finds this, because it computes the
value. An author who does not verify answers with the attempt that seems right.

Each author has a probability of continuing after a failed attempt, and nobody continues for long.
After a verification that fails, an author always continues: a verification followed by giving up
would not raise the reward. A verification begins with a comma, as continuing does. When it began
with a full stop, as giving up does, reinforcement learning unlearned both together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Literal

import numpy as np

from r1lit.batches import Problem
from r1lit.data.sources import Document, DocumentSource, ProblemSource
from r1lit.errors import check_at_least
from r1lit.seeding import generator, permutation
from r1lit.text.prompts import render
from r1lit.worlds.corpus import FACTS_PER_TABLE, posted, tagged
from r1lit.worlds.countdown import (
    MAX_NUMBER,
    MAX_RESULT,
    MIN_TARGET,
    Attempt,
    Operation,
    branches,
    number_sets,
    step,
)
from r1lit.worlds.countdown import question as question_of_three
from r1lit.worlds.language import check_shares
from r1lit.worlds.splits import Split, check_split
from r1lit.worlds.writing import ENGLISH, Work, pick, weighted

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

    @property
    def left_over(self) -> int:
        """The number that the first step leaves over."""
        left = list(self.numbers)
        left.remove(self.attempt.first.left)
        left.remove(self.attempt.first.right)
        return left[0]

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
    """A corpus's authors: ``patient``, the share that never gives up; ``check``, their mean rate.

    ``check`` is the verification rate of what seems right. The shipped base was pretrained on
    authors with the defaults.
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
    """One author's text of a search.

    ``claimed`` is the place that the author answers with, rightly or not; ``None`` gave up.
    ``stop`` is the place at which another author would continue; repeated searches count on.
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
    """Write one author's text: from place ``start`` until something is claimed or given up.

    At the end of the search the author begins again, since the solution must have been overlooked.

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
    return f"{place.attempt.first}, {place.left_over}"


def judge(
    second: Operation, target: int, habits: Habits, rng: np.random.Generator
) -> tuple[Literal["claimed", "refused", "failed"], str]:
    """Return the outcome of an attempt, and the line that the author writes of it.

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


def checked(second: Operation, target: int, rng: np.random.Generator) -> str:
    """Write a check: the exact value of an attempt, and how it compares with the target."""
    text = f"{ENGLISH.say(weighted(rng, CHECKS), rng)}{second}"
    if second.result == target:
        return text
    return f"{text} {'<' if second.result < target else '>'} {target}"


PAGES = (
    ("response", 0.33),
    ("thread", 0.37),
    ("outline", 0.16),
    ("table", 0.07),
    ("review", 0.07),
)
SIZE_SHARES = ((3, 0.6), (4, 0.4))
TRIED_SHARE = {"response": 0.2, "thread": 0.5}
"""Share of the pages whose question includes earlier attempts."""
OVERLOOKED_SHARE = 0.15
"""Share of these pages whose earlier attempts may have come past the solution."""
CHECKS_PER_REVIEW = 12
CAREFUL = Habits(go_on=1.0, check=1.0)
MAX_PLACES = 110
"""Attempts after which a thread ends unsolved."""

Sets = dict[int, list[tuple[int, ...]]]
"""Sets of numbers by their size."""


class SearchCorpus(DocumentSource):
    """Pages about searches, page ``i`` a function of ``(seed, i)``.

    Args:
        num_documents: how many.
        seed: of every page.
        patient: the share of authors who never give up; the shipped base has read none of them.
        check: the share of what seems right that authors check, in the mean: more than 0, below 1.
    """

    def __init__(
        self,
        num_documents: int = 60_000,
        seed: int = 0,
        patient: float = 0.0,
        check: float = 0.25,
    ) -> None:
        check_at_least("num_documents", num_documents, 1)
        check_shares(patient=patient)
        if not 0 < check < 1:
            raise ValueError(f"check: {check} is not a share above 0 and below 1")
        self.num_documents = num_documents
        self.seed = seed
        self.authors = Authors(patient=patient, check=check)

    def documents(self) -> list[Document]:
        """Write the pages."""
        sets: Sets = {size: number_sets("corpus", size) for size, _ in SIZE_SHARES}
        return [
            page(generator(self.seed, "search page", i), sets, self.authors)
            for i in range(self.num_documents)
        ]


def page(rng: np.random.Generator, sets: Sets, authors: Authors) -> Document:
    """Write one page about numbers of ``sets``, or of arithmetic."""
    kind = weighted(rng, PAGES)
    if kind in ("table", "review"):
        text = table(rng) if kind == "table" else review(rng)
        return Document(prompt="", response=text)
    numbers, search, target, needed = draw(rng, sets)
    asked, start = question(numbers, target), 0
    if kind == "outline":
        return Document(prompt="", response=f"{asked} {outline(search)}")
    if rng.random() < TRIED_SHARE[kind]:
        overlooked = rng.random() < OVERLOOKED_SHARE
        start = int(rng.integers(len(search) if overlooked else needed))
        asked += tried(search[start - 1]) if start else ""
    if kind == "thread":
        posts = thread(search, target, start, rng, authors)
        lines = [f"Q: {asked}", *(f"A: {text}" for text in posts)]
        return Document(prompt="", response="\n".join(lines))
    own = write(search, target, authors.draw(rng), rng, start=start)
    claimed = own.claimed or search[int(rng.integers(len(search)))]
    work = Work(thinking=own.text, answer=claimed.attempt.expression)
    return Document(prompt=render("small_world", asked), response=tagged(work, rng))


def draw(rng: np.random.Generator, sets: Sets) -> tuple[tuple[int, ...], list[Place], int, int]:
    """Draw numbers in an order, their search, a target of any level, and what it needs."""
    while True:
        own = sets[weighted(rng, SIZE_SHARES)]
        numbers = tuple(int(n) for n in rng.permutation(own[int(rng.integers(len(own)))]))
        search = places(numbers)
        needed = {
            target: attempts
            for target, attempts in needed_attempts(search).items()
            if target >= MIN_TARGET and target not in numbers
        }
        low, high = LEVELS[int(rng.integers(len(LEVELS)))]
        fitting = [target for target, attempts in needed.items() if low <= attempts <= high]
        if fitting:
            target = fitting[int(rng.integers(len(fitting)))]
            return numbers, search, target, needed[target]


def thread(
    search: list[Place], target: int, start: int, rng: np.random.Generator, authors: Authors
) -> list[str]:
    """Write posts by one author after the other, until one is right or nobody is left."""
    posts: list[str] = []
    last = Post(text="", stop=start, claimed=None)
    while last.stop < start + MAX_PLACES:
        own = authors.draw(rng)
        last = write(search, target, own, rng, start=last.stop, doubted=last.claimed)
        if last.claimed is None:
            posts.append(last.text)
            continue
        posts.append(posted(Work(thinking=last.text, answer=last.claimed.attempt.expression)))
        if last.claimed.attempt.second.result == target:
            break
    return posts


def outline(search: list[Place]) -> str:
    """Write the first steps of a search in their order."""
    begins = [search[0], *(b for a, b in pairwise(search) if not b.same_branch(a))]
    return "First steps: " + ". ".join(map(branch, begins)) + "."


def tried(place: Place) -> str:
    """Write how far somebody has come."""
    second = place.attempt.second
    return f" Tried up to {branch(place)}: {second.left} {second.operation} {second.right}."


def table(rng: np.random.Generator) -> str:
    """Write a page of arithmetic facts, exact and to the nearest five."""
    facts = [fact(rng) for _ in range(FACTS_PER_TABLE)]
    lines = [
        str(f) if rng.random() < 0.5 else f"{f.left} {f.operation} {f.right} ~ {about(f.result)}"
        for f in facts
    ]
    return "Table: " + ", ".join(lines) + "."


def review(rng: np.random.Generator) -> str:
    """Write a page of checks, of what is right and of what only seems to be, evenly."""
    lines = []
    for _ in range(CHECKS_PER_REVIEW):
        found = fact(rng)
        seeming = [n for n in range(1, MAX_RESULT + 1) if about(n) == about(found.result)]
        target = found.result if rng.random() < 0.5 else seeming[int(rng.integers(len(seeming)))]
        lines.append(judge(found, target, CAREFUL, rng)[1].removesuffix("."))
    return "Review: " + ". ".join(lines) + "."


def fact(rng: np.random.Generator) -> Operation:
    """Draw a fact of arithmetic."""
    while True:
        left, right = int(rng.integers(1, MAX_RESULT + 1)), int(rng.integers(1, MAX_NUMBER + 1))
        found = step(left, OPERATIONS[int(rng.integers(len(OPERATIONS)))], right)
        if found:
            return found
