"""Evaluation metrics: unweighted reward functions, each on the responses that it applies to."""

from __future__ import annotations

import math
from collections.abc import Sequence

from r1lit.problems import Response
from r1lit.rewards import RewardFunction, score


def eval_metrics_of(
    functions: Sequence[RewardFunction], responses: Sequence[Response]
) -> list[dict[str, float]]:
    """Return the value of each function for each response, by the function's name.

    A function is called with the responses that it ``applies`` to. NaN means undefined (following
    instructions where there are none) and is left out, so that no mean counts it.

    Raises:
        ValueError: as `r1lit.rewards.score`, if a function does not return a number a response.
    """
    values: list[dict[str, float]] = [{} for _ in responses]
    for function in functions:
        rows = [row for row, response in enumerate(responses) if function.applies(response)]
        masked = _NaNMasked(function)
        if rows:
            found = score([masked], [responses[row] for row in rows])[0][function.name]
            for row, value, is_defined in zip(rows, found, masked.defined, strict=True):
                if is_defined:
                    values[row][function.name] = value
    return values


class _NaNMasked(RewardFunction):
    """Wraps a function: NaN becomes 0, and ``defined`` is false there."""

    def __init__(self, function: RewardFunction) -> None:
        super().__init__(function.weight)
        self.name = function.name
        self.function = function
        self.defined: list[bool] = []

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        values = self.function(responses)
        try:
            self.defined = [not math.isnan(value) for value in values]
        except (TypeError, ValueError, OverflowError, RuntimeError):
            return values  # no list of numbers: `score` raises
        return [
            v if is_defined else 0.0 for v, is_defined in zip(values, self.defined, strict=True)
        ]
