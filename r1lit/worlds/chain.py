"""Chains of operations: problems whose answer needs serial work and cannot be guessed.

``Start with 7, plus 5, times 3, minus 8.`` Every intermediate result is a whole number of 1 to 99,
so each step is one fact of Countdown's table; no shortcut skips a step.
"""

from __future__ import annotations

import numpy as np

from r1lit.batches import Problem
from r1lit.data.sources import ProblemSource
from r1lit.errors import check_at_least
from r1lit.seeding import generator
from r1lit.worlds import russian as wording
from r1lit.worlds.countdown import (
    MAX_NUMBER,
    MAX_RESULT,
    OPERATIONS,
)
from r1lit.worlds.language import Language, check_shares, language_of
from r1lit.worlds.splits import Split, check_split, draw_distinct, hashed_split

MIN_STEPS, MAX_STEPS = 4, 8
WORDS = {
    "+": ("plus", "加"),
    "-": ("minus", "减"),
    "*": ("times", "乘"),
    "/": ("over", "除以"),
}
Chain = tuple[int, tuple[tuple[str, int], ...]]


def apply(value: int, operation: str, operand: int) -> int | None:
    """Return ``value operation operand``; ``None`` unless it is whole and 1 to 99."""
    match operation:
        case "+":
            result = value + operand
        case "-":
            result = value - operand
        case "*":
            result = value * operand
        case _:
            result = value // operand if value % operand == 0 else 0
    return result if 1 <= result <= MAX_RESULT else None


def results(chain: Chain) -> list[int]:
    """Return the value after every step."""
    value, steps = chain
    out = []
    for operation, operand in steps:
        after = apply(value, operation, operand)
        assert after is not None, chain
        out.append(value := after)
    return out


def draw(rng: np.random.Generator, fewest: int = MIN_STEPS, most: int = MAX_STEPS) -> Chain:
    """Return a random chain of so many steps, operations uniform among those that apply."""
    start = value = int(rng.integers(1, MAX_NUMBER + 1))
    steps: list[tuple[str, int]] = []
    for _ in range(int(rng.integers(fewest, most + 1))):
        operation = OPERATIONS[int(rng.integers(4))]
        operands = [n for n in range(2, MAX_NUMBER + 1) if apply(value, operation, n) is not None]
        if not operands:
            operation = "+" if value <= MAX_RESULT - MAX_NUMBER else "-"
            operands = list(range(2, MAX_NUMBER + 1))
        operand = operands[int(rng.integers(len(operands)))]
        after = apply(value, operation, operand)
        assert after is not None
        value = after
        steps.append((operation, operand))
    return start, tuple(steps)


def split_of(chain: Chain) -> Split:
    """Return the split that ``chain`` belongs to: a hash of its operations decides."""
    return hashed_split("chain", uid(chain))


def draw_from(
    split: Split, rng: np.random.Generator, fewest: int = MIN_STEPS, most: int = MAX_STEPS
) -> Chain:
    """Return a random chain of ``split``."""
    while split_of(chain := draw(rng, fewest, most)) != split:
        pass
    return chain


def uid(chain: Chain) -> str:
    """Return the identity of a chain: ``chain-7+5*3-8``."""
    return f"chain-{chain[0]}" + "".join(f"{op}{n}" for op, n in chain[1])


def question(chain: Chain, language: Language = "en") -> str:
    """Return a chain in words."""
    if language == "ru":
        steps = ", ".join(f"{wording.OPERATIONS[op]} {n}" for op, n in chain[1])
        return wording.CHAIN.format(start=chain[0], steps=steps)
    place = int(language == "zh")
    steps = ", ".join(f"{WORDS[op][place]} {n}" for op, n in chain[1])
    return f"从 {chain[0]} 开始, {steps}。" if place else f"Start with {chain[0]}, {steps}."


class WorldChain(ProblemSource):
    """Chain problems of the small world.

    Args:
        split: corpus, train or held_out.
        num_problems: how many.
        seed: of the sample.
        chinese: the share of questions in Chinese.
        russian: and in Russian, which the shipped base was not trained on.
        min_steps: of a chain; those of the corpus have 4 to 8.
        max_steps: of a chain.
    """

    def __init__(
        self,
        split: Split = "train",
        num_problems: int = 256,
        seed: int = 0,
        chinese: float = 0.0,
        russian: float = 0.0,
        min_steps: int = MIN_STEPS,
        max_steps: int = MAX_STEPS,
    ) -> None:
        check_at_least("num_problems", num_problems, 1)
        check_at_least("min_steps", min_steps, 1)
        check_at_least("max_steps", max_steps, min_steps)
        check_split(split)
        check_shares(chinese=chinese, russian=russian)
        self.split = split
        self.chinese = chinese
        self.russian = russian
        self.num_problems = num_problems
        self.seed = seed
        self.steps = (min_steps, max_steps)

    def problems(self) -> list[Problem]:
        """Return the problems, without repetition.

        Raises:
            ValueError: if there are not so many of these lengths.
        """
        rng = generator(self.seed, "chain", self.split)
        fewest, most = self.steps
        chains = draw_distinct(
            lambda: draw_from(self.split, rng, fewest, most),
            uid,
            self.num_problems,
            f"split {self.split!r} with chains of {fewest} to {most} steps",
        )
        return [self._problem(key, chain) for key, chain in chains.items()]

    def _problem(self, key: str, chain: Chain) -> Problem:
        language = language_of(key, self.chinese, self.russian)
        return Problem(
            uid=key,
            question=question(chain, language),
            answer=str(results(chain)[-1]),
            source="chain",
            verifier="math",
            meta={"kind": "reasoning", "language": language},
        )
