"""Small programs: one line of Python, checked by tests in the sandbox.

``Write f(x): plus 3, times 2.`` asks for ``def f(x): return ( x + 3 ) * 2``; other forms decide
(``if x > 5``), go through a list, or give only examples (``f(2) = 7, f(3) = 9``), for which a
factor has to be searched for.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from r1lit.batches import Problem
from r1lit.data.sources import ProblemSource
from r1lit.errors import check_at_least
from r1lit.seeding import generator
from r1lit.worlds.chain import WORDS, apply
from r1lit.worlds.language import Language, check_shares, language_of
from r1lit.worlds.splits import Split, check_split, draw_distinct, hashed_split
from r1lit.worlds.writing import pick, weighted

Form = Literal["examples", "steps", "if", "each"]
Part = tuple[str, int]
FORMS: tuple[tuple[Form, float], ...] = (
    ("examples", 0.4),
    ("steps", 0.3),
    ("if", 0.2),
    ("each", 0.1),
)
SHOWN = 3  # the input with which steps are checked; all of their results are 1 to 99
TESTED = range(13)


@dataclass(frozen=True, kw_only=True)
class LineProgram:
    """A program of one form: its operations, and the ``given`` limit, or inputs of examples."""

    form: Form
    parts: tuple[Part, ...]
    given: tuple[int, ...] = ()

    @property
    def drafts(self) -> list[str]:
        """The expressions on the way to the program."""
        if self.form in ("if", "each"):
            return [f"x > {self.given[0]}", *(f"x {operation} {n}" for operation, n in self.parts)]
        drafts, text = [], "x"
        for operation, n in self.parts:
            closed = operation == "*" and ("+" in text or "-" in text)
            text = f"{f'( {text} )' if closed else text} {operation} {n}"
            drafts.append(text)
        return drafts

    @property
    def code(self) -> str:
        """The program."""
        drafts = self.drafts
        match self.form:
            case "if":
                return f"def f(x): return {drafts[1]} if {drafts[0]} else {drafts[2]}"
            case "each":
                return f"def f(v): return [{drafts[1]} for x in v if {drafts[0]}]"
            case _:
                return f"def f(x): return {drafts[-1]}"

    @property
    def answer(self) -> str:
        """The program as the code verifier finds it."""
        return f"```\n{self.code}\n```"

    def of(self, x: int) -> int:
        """Return f(x); of a list's program, what becomes of ``x`` in it."""
        if self.form == "if":
            return _after(x, self.parts[:1] if x > self.given[0] else self.parts[1:])
        return _after(x, self.parts)

    @property
    def test(self) -> str:
        """The assert that decides."""
        if self.form == "each":
            right = [self.of(x) for x in TESTED if x > self.given[0]]
            return f"assert f(list(range({len(TESTED)}))) == {right}"
        return f"assert [f(x) for x in range({len(TESTED)})] == {[self.of(x) for x in TESTED]}"

    def question(self, language: Language = "en") -> str:
        """Return the question."""
        zh = language == "zh"
        done = [f"{WORDS[operation][zh]} {n}" for operation, n in self.parts]
        match self.form:
            case "examples":
                text = ", ".join(f"f({x}) = {self.of(x)}" for x in self.given)
            case "if":
                either, other = ("如果", "否则") if zh else ("if", "else")
                text = f"{either} x > {self.given[0]} {done[0]}, {other} {done[1]}"
            case "each":
                each = "v 中每个" if zh else "each"
                text = f"{each} x > {self.given[0]}{'' if zh else ' of v'} {done[0]}"
            case _:
                text = ", ".join(done)
        argument = "v" if self.form == "each" else "x"
        return f"写 f({argument}): {text}。" if zh else f"Write f({argument}): {text}."


def _after(x: int, parts: tuple[Part, ...]) -> int:
    for operation, n in parts:
        x = x + n if operation == "+" else x - n if operation == "-" else x * n
    return x


def draw(rng: np.random.Generator) -> LineProgram:
    """Return a random program."""
    form = weighted(rng, FORMS)
    count = {"each": 1, "steps": int(rng.integers(2, 4))}.get(form, 2)
    while True:
        parts = tuple(draw_part(rng) for _ in range(count))
        given = tuple(rng.integers(1, (5, 4, 4)).cumsum().tolist())
        factor_first = parts[0][0] == "*" and parts[-1][0] != "*"
        match form:
            case "examples" if factor_first and calculation(given[0], parts):
                return LineProgram(form=form, parts=parts, given=given)
            case "steps" if calculation(SHOWN, parts):
                return LineProgram(form=form, parts=parts)
            case "if" | "each" if count == 1 or parts[0] != parts[1]:
                return LineProgram(form=form, parts=parts, given=(int(rng.integers(2, 9)),))


def draw_part(rng: np.random.Generator) -> Part:
    """Return a random operation."""
    return pick(rng, ("+", "-", "*")), int(rng.integers(2, 10))


def calculation(value: int, parts: tuple[Part, ...]) -> list[str]:
    """Return the calculation from ``value``, step by step; nothing if a result is not 1 to 99."""
    steps = []
    for operation, n in parts:
        after = apply(value, operation, n)
        if after is None:
            return []
        steps.append(f"{value} {operation} {n} = {after}")
        value = after
    return steps


@lru_cache(maxsize=100_000)
def split_of(code: str) -> Split:
    """Return the split that a program belongs to, whatever the form of its question."""
    return hashed_split("program", code)


def draw_from(split: Split, rng: np.random.Generator) -> LineProgram:
    """Return a random program of ``split``."""
    while split_of((program := draw(rng)).code) != split:
        pass
    return program


class WorldPrograms(ProblemSource):
    """Small programs of the small world.

    Args:
        split: corpus, train or held_out.
        num_problems: how many.
        seed: of the sample.
        chinese: the share of questions in Chinese.
    """

    def __init__(
        self, split: Split = "train", num_problems: int = 64, seed: int = 0, chinese: float = 0.0
    ) -> None:
        check_at_least("num_problems", num_problems, 1)
        check_split(split)
        check_shares(chinese=chinese)
        self.split = split
        self.num_problems = num_problems
        self.seed = seed
        self.chinese = chinese

    def problems(self) -> list[Problem]:
        """Return the problems, without repetition.

        Raises:
            ValueError: if the split holds too few.
        """
        rng = generator(self.seed, "programs", self.split)
        found = draw_distinct(
            lambda: draw_from(self.split, rng),
            LineProgram.question,
            self.num_problems,
            f"split {self.split!r}",
        )
        return [self._problem(program) for program in found.values()]

    def _problem(self, program: LineProgram) -> Problem:
        uid = f"program-{program.question()[len('Write ') : -1].replace(' ', '')}"
        language = language_of(uid, self.chinese)
        return Problem(
            uid=uid,
            question=program.question(language),
            answer=program.answer,
            source="programs",
            verifier="functional_code",
            meta={
                "tests": [program.test],
                "form": program.form,
                "kind": "reasoning",
                "language": language,
            },
        )
