"""Sums and differences of two small whole numbers: the task of `make real`."""

from __future__ import annotations

from typing import Literal

from r1lit.data.sources import ProblemSource
from r1lit.problems import Problem
from r1lit.seeding import permutation


class Sums(ProblemSource):
    """Questions "What is a + b?" and "What is a - b?" in turn, a and b from 0 to ``largest``.

    Differences are never negative. A fifth of the unordered pairs {a, b} is held out, for sums and
    differences alike: neither 3 + 8, 8 + 3 nor 8 - 3 is trained on where {3, 8} is held out.

    Args:
        split: the pairs to train on, or those held out.
        num_problems: how many, half of them sums; all pairs if left out.
        largest: of the two numbers.
        seed: of the split and the order.
    """

    def __init__(
        self,
        split: Literal["train", "held_out"],
        num_problems: int | None = None,
        largest: int = 30,
        seed: int = 0,
    ) -> None:
        self.split = split
        self.num_problems = num_problems
        self.largest = largest
        self.seed = seed

    def problems(self) -> list[Problem]:
        """Return sums and differences in turn."""
        pairs = [(a, b) for a in range(self.largest + 1) for b in range(a + 1)]
        order = permutation(len(pairs), self.seed, "pairs")
        num_held_out = len(pairs) // 5
        mine = order[:num_held_out] if self.split == "held_out" else order[num_held_out:]
        made = []
        for index in mine:
            a, b = pairs[index]
            first, second = (a, b) if index % 2 else (b, a)
            made += [self._problem(first, "+", second), self._problem(a, "-", b)]
        if self.num_problems is not None and self.num_problems > len(made):
            raise ValueError(
                f"num_problems: {self.num_problems}, but numbers to {self.largest} give"
                f" {len(made)} in {self.split}"
            )
        return made[: self.num_problems]

    def _problem(self, first: int, sign: str, second: int) -> Problem:
        return Problem(
            uid=f"{first}{sign}{second}",
            question=f"What is {first} {sign} {second}?",
            answer=str(first + second if sign == "+" else first - second),
            source="sums" if sign == "+" else "differences",
        )
