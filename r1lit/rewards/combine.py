"""Combining reward functions into the one number a policy is trained on."""

from __future__ import annotations

import math
from collections.abc import Sequence

from r1lit.batches import Response
from r1lit.rewards.base import RewardFunction


def score(
    functions: Sequence[RewardFunction], responses: Sequence[Response]
) -> tuple[dict[str, list[float]], list[float]]:
    """Return every reward unweighted and by name, and the weighted sum a response.

    With accuracy (weight 1) and format (weight 0.1), a right answer in the right format gives
    ``({"accuracy": [1.0], "format": [1.0]}, [1.1])``.

    Raises:
        ValueError: if there is no function, two share a name, a weight is not finite, or one
            returns ``None``, a wrong number of rewards, or a reward that is not a finite number.
    """
    check_rewards(functions)
    rewards: dict[str, list[float]] = {}
    total = [0.0] * len(responses)
    for function in functions:
        name = function.name
        rewards[name] = _checked(name, function(responses), len(responses))
        total = [t + function.weight * r for t, r in zip(total, rewards[name], strict=True)]
    return rewards, total


def check_rewards(functions: Sequence[RewardFunction]) -> None:
    """Check that reward functions can be added up, before anything is rolled out.

    Raises:
        ValueError: if there is none, two share a name, or a weight is not finite.
    """
    if not functions:
        raise ValueError("rewards: at least one reward function is needed")
    names = [function.name for function in functions]
    for function in functions:
        if names.count(function.name) > 1:
            raise ValueError(f"rewards: two reward functions are named {function.name!r}")
        if not math.isfinite(function.weight):
            raise ValueError(
                f"weight: that of reward function {function.name!r} is {function.weight}"
            )


def _checked(name: str, values: Sequence[float] | None, num_responses: int) -> list[float]:
    if values is None:
        raise ValueError(f"reward function {name!r} returned None, not a list of rewards")
    if len(values) != num_responses:
        raise ValueError(
            f"reward function {name!r} returned {len(values)} rewards for {num_responses} responses"
        )
    for row, value in enumerate(values):
        try:
            finite = math.isfinite(value)
        except TypeError:
            finite = False
        if not finite:
            raise ValueError(
                f"reward function {name!r} returned {value!r} at row {row}, not a finite number"
            )
    return [float(value) for value in values]
