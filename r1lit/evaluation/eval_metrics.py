"""Measures of an evaluation: reward functions, each where it has something to say."""

from __future__ import annotations

import math
from collections.abc import Sequence

from r1lit.problems import Response
from r1lit.rewards import RewardFunction, score


def measure(
    functions: Sequence[RewardFunction], responses: Sequence[Response]
) -> list[dict[str, float]]:
    """Return the measures of each response by name.

    A function is called with the responses that it ``applies`` to, and NaN is its word for a
    response that it has nothing to say about: such a measure is left out, so no mean counts it.
    Following instructions is measured where there are instructions, and not 0 elsewhere.

    Raises:
        ValueError: as `r1lit.rewards.score`, for what else is not a list of finite numbers.
    """
    measured: list[dict[str, float]] = [{} for _ in responses]
    for function in functions:
        rows = [row for row, response in enumerate(responses) if function.applies(response)]
        silent = _MayBeSilent(function)
        if rows:
            values = score([silent], [responses[row] for row in rows])[0][function.name]
            for row, value, said in zip(rows, values, silent.said, strict=True):
                if said:
                    measured[row][function.name] = value
    return measured


class _MayBeSilent(RewardFunction):
    """Another function with 0 for NaN, and which of its numbers were said."""

    def __init__(self, function: RewardFunction) -> None:
        super().__init__(function.weight)
        self.name = function.name
        self.function = function
        self.said: list[bool] = []

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        values = self.function(responses)
        try:
            self.said = [not math.isnan(value) for value in values]
        except (TypeError, ValueError, OverflowError, RuntimeError):
            return values  # no list of numbers: the check of all rewards says so
        return [v if said else 0.0 for v, said in zip(values, self.said, strict=True)]
