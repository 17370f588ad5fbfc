"""Tasks about two small whole numbers: sums and differences (`make real`), products, the larger."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Literal

from r1lit.data.sources import ProblemSource
from r1lit.problems import Problem
from r1lit.seeding import permutation


class PairTask(ProblemSource):
    """Questions about two whole numbers from ``smallest`` to ``largest``.

    A fifth of the unordered pairs {a, b} is held out, whatever is asked about them: neither 3 + 8,
    8 + 3 nor 8 - 3 is trained on where {3, 8} is held out.

    Args:
        split: the pairs to train on, or those held out.
        num_problems: how many; those of all pairs if left out.
        largest: of the two numbers.
        seed: of the split and the order.
        smallest: of the two numbers.
        wording: put around the question; it holds {question}.
    """

    def __init__(
        self,
        split: Literal["train", "held_out"],
        num_problems: int | None = None,
        largest: int = 30,
        seed: int = 0,
        smallest: int = 0,
        wording: str = "{question}",
    ) -> None:
        self.split = split
        self.num_problems = num_problems
        self.largest = largest
        self.seed = seed
        self.smallest = smallest
        self.wording = wording

    @abstractmethod
    def problems_about(self, first: int, second: int) -> list[Problem]:
        """Return the problems about two numbers, of which either may be the larger."""

    def problems(self) -> list[Problem]:
        """Return the problems of the split, pair by pair."""
        numbers = range(self.smallest, self.largest + 1)
        pairs = [(a, b) for a in numbers for b in numbers if b <= a]
        order = permutation(len(pairs), self.seed, "pairs")
        num_held_out = len(pairs) // 5
        mine = order[:num_held_out] if self.split == "held_out" else order[num_held_out:]
        made = []
        for index in mine:
            a, b = pairs[index]
            made += self.problems_about(*((a, b) if index % 2 else (b, a)))
        if self.num_problems is not None and self.num_problems > len(made):
            raise ValueError(
                f"num_problems: {self.num_problems}, but numbers to {self.largest} give"
                f" {len(made)} in {self.split}"
            )
        return [
            replace(
                p,
                question=self.wording.replace("{question}", p.question),
                meta={"kind": "reasoning"},
            )
            for p in made[: self.num_problems]
        ]


class Sums(PairTask):
    """Sums "What is a + b?" and differences "What is a - b?" in turn; none is negative."""

    def problems_about(self, first: int, second: int) -> list[Problem]:
        """Return their sum and their difference."""
        large, small = max(first, second), min(first, second)
        return [
            problem("sums", f"{first} + {second}", first + second),
            problem("differences", f"{large} - {small}", large - small),
        ]


class Products(PairTask):
    """Products, "What is a * b?"."""

    def problems_about(self, first: int, second: int) -> list[Problem]:
        """Return their product."""
        return [problem("products", f"{first} * {second}", first * second)]


class Larger(PairTask):
    """The larger number, "Which number is larger, a or b?", in both orders; never of equals."""

    def problems_about(self, first: int, second: int) -> list[Problem]:
        """Return the question in both orders."""
        if first == second:
            return []
        return [
            Problem(uid=f"{a}|{b}", question=f"Which number is larger, {a} or {b}?",
                    answer=str(max(a, b)), source="larger")
            for a, b in ((first, second), (second, first))
        ]  # fmt: skip


def problem(source: str, expression: str, value: int) -> Problem:
    """Return the question for the value of an expression."""
    uid = expression.replace(" ", "")
    return Problem(uid=uid, question=f"What is {expression}?", answer=str(value), source=source)
