"""Knights and knaves of the small world: solved by search, rarely by a guess.

Three or four people each say something. A knight says only what is true, a knave only what is
false, and exactly one of the 8 or 16 assignments fits: ``Anna says: Ben is a knave. …``
"""

from __future__ import annotations

from functools import lru_cache
from itertools import permutations

import numpy as np

from r1lit.batches import Problem
from r1lit.data.sources import ProblemSource
from r1lit.errors import check_at_least
from r1lit.seeding import generator
from r1lit.verifiers.logic import solutions
from r1lit.worlds.language import NAMES, Language, check_shares, language_of
from r1lit.worlds.splits import Split, check_split, draw_distinct, hashed_split
from r1lit.worlds.writing import pick

MIN_PEOPLE, MAX_PEOPLE = 3, 4
PEOPLE = (tuple(name for name, _ in NAMES), tuple("甲乙丙丁戊己庚辛"))
"""Names, in English and in Chinese: one token each, since a search says them often."""
KINDS = (("knave", "knight"), ("骗子", "骑士"))
Statement = tuple[str, *tuple[int, ...]]
Puzzle = tuple[Statement, ...]
"""``puzzle[i]`` is what person i says, in the notation of ``r1lit.verifiers.logic``."""


def draw(rng: np.random.Generator, num_people: int) -> Puzzle:
    """Return a random puzzle that exactly one assignment fits."""
    while len(solutions(puzzle := tuple(_say(rng, num_people, i) for i in range(num_people)))) != 1:
        pass
    return puzzle


def _say(rng: np.random.Generator, num_people: int, speaker: int) -> Statement:
    kind = pick(rng, ("knight", "knave", "knave", "same", "number"))
    if kind == "number":
        return kind, int(rng.integers(num_people + 1))
    if kind == "same":
        first, second = sorted(rng.permutation(num_people)[:2].tolist())
        return kind, first, second
    return kind, (speaker + int(rng.integers(1, num_people))) % num_people


@lru_cache(maxsize=100_000)
def split_of(puzzle: Puzzle) -> Split:
    """Return the split that ``puzzle`` belongs to, whatever the order of its people."""
    orders = permutations(range(len(puzzle)))
    key = min(tuple(_told(puzzle[i], order) for i in order) for order in orders)
    return hashed_split("puzzle", uid(key))


def _told(statement: Statement, order: tuple[int, ...]) -> Statement:
    kind, *parts = statement
    return statement if kind == "number" else (kind, *sorted(order.index(i) for i in parts))


def draw_from(split: Split, rng: np.random.Generator, num_people: int | None = None) -> Puzzle:
    """Return a random puzzle of ``split``, of 3 or 4 people unless ``num_people`` is given."""
    num_people = num_people or int(rng.integers(MIN_PEOPLE, MAX_PEOPLE + 1))
    while split_of(puzzle := draw(rng, num_people)) != split:
        pass
    return puzzle


def uid(puzzle: Puzzle) -> str:
    """Return the identity of a puzzle: ``puzzle-knave1-same02-number2``."""
    return "-".join(["puzzle", *("".join(map(str, statement)) for statement in puzzle)])


def draw_names(rng: np.random.Generator, puzzle: Puzzle, language: Language) -> list[str]:
    """Return a name for each person."""
    people = PEOPLE[language == "zh"]
    return [people[i] for i in rng.permutation(len(people))[: len(puzzle)]]


def question(puzzle: Puzzle, names: list[str], language: Language) -> str:
    """Return a puzzle in words."""
    lines = [(name, _words(s, names, language)) for name, s in zip(names, puzzle, strict=True)]
    if language == "zh":
        return "".join(f"{name}说: {words}。" for name, words in lines) + "谁是骑士, 谁是骗子?"
    said = " ".join(f"{name} says: {words}." for name, words in lines)
    return f"{said} Who is a knight and who is a knave?"


def _words(statement: Statement, names: list[str], language: Language) -> str:
    kind, *places = statement
    zh = language == "zh"
    match kind:
        case "number":
            return f"有 {places[0]} 个骑士" if zh else f"there are {places[0]} knights"
        case "same":
            a, b = (names[i] for i in places)
            return f"{a}和{b}一样" if zh else f"{a} and {b} are alike"
        case _:
            word = KINDS[zh][kind == "knight"]
            return f"{names[places[0]]}是{word}" if zh else f"{names[places[0]]} is a {word}"


def answer(knights: tuple[bool, ...], names: list[str], language: Language) -> str:
    """Return who is a knight and who is a knave, as the logic verifier reads it."""
    zh = language == "zh"
    being = "是" if zh else " is a "
    return ", ".join(f"{n}{being}{KINDS[zh][k]}" for n, k in zip(names, knights, strict=True))


class WorldPuzzles(ProblemSource):
    """Knights and knaves of the small world.

    Args:
        split: corpus, train or held_out.
        num_problems: how many.
        seed: of the sample.
        num_people: 3 or 4, which is how hard they are; both if left out.
        chinese: the share of questions in Chinese.
    """

    def __init__(
        self,
        split: Split = "train",
        num_problems: int = 64,
        seed: int = 0,
        num_people: int | None = None,
        chinese: float = 0.0,
    ) -> None:
        check_at_least("num_problems", num_problems, 1)
        check_split(split)
        check_shares(chinese=chinese)
        if num_people not in (None, MIN_PEOPLE, MAX_PEOPLE):
            raise ValueError(f"num_people: {num_people} is neither {MIN_PEOPLE} nor {MAX_PEOPLE}")
        self.split = split
        self.num_problems = num_problems
        self.seed = seed
        self.num_people = num_people
        self.chinese = chinese

    def problems(self) -> list[Problem]:
        """Return the problems, without repetition.

        Raises:
            ValueError: if the split holds too few.
        """
        rng = generator(self.seed, "puzzles", self.split)
        found = draw_distinct(
            lambda: draw_from(self.split, rng, self.num_people),
            uid,
            self.num_problems,
            f"split {self.split!r}",
        )
        return [self._problem(key, puzzle) for key, puzzle in found.items()]

    def _problem(self, key: str, puzzle: Puzzle) -> Problem:
        language = language_of(key, self.chinese)
        names = draw_names(generator(self.seed, "names", key), puzzle, language)
        (knights,) = solutions(puzzle)
        return Problem(
            uid=key,
            question=question(puzzle, names, language),
            answer=answer(knights, names, language),
            source="puzzles",
            verifier="logic",
            meta={
                "names": names,
                "statements": [list(statement) for statement in puzzle],
                "kind": "reasoning",
                "language": language,
            },
        )
