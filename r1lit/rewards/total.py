"""The weighted sum of reward functions."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence, Set
from typing import Any

from r1lit.batches import Response
from r1lit.rewards.base import RewardFunction
from r1lit.rewards.plain import Scores, as_reward
from r1lit.user_code import user_code
from r1lit.waiting import awaited, warned_if_slow

SLOW_S = 30.0
"""Seconds after which a reward function is named that has not returned."""


def score(
    functions: Sequence[RewardFunction | Scores],
    responses: Sequence[Response],
    iteration: int | None = None,
) -> tuple[dict[str, list[float]], list[float]]:
    """Return every reward unweighted and by name, and the weighted sum a response.

    A function is a ``RewardFunction`` or a plain callable, which has its own name and weight 1. It
    may be ``async``.
    At a training ``iteration`` before its ``from_iteration`` a function is not called and its
    rewards are 0; without one, as in evaluation, every function is called.

    With accuracy (weight 1) and format (weight 0.1), a right answer in the right format gives
    ``({"accuracy": [1.0], "format": [1.0]}, [1.1])``.

    Raises:
        ValueError: if there is no function, two share a name, a weight is not finite, or one
            crashes or returns ``None``, a wrong number of rewards, or a reward that is not a
            finite number.
    """
    rewarding = [f if isinstance(f, RewardFunction) else as_reward(f) for f in functions]
    check_rewards(rewarding)
    rewards: dict[str, list[float]] = {}
    total = [0.0] * len(responses)
    for function in rewarding:
        name = function.name
        waits = iteration is not None and iteration < function.from_iteration
        what = f"reward function {name!r}"
        slow = f"{what} has not returned after {SLOW_S:g} s, and the run waits for it"
        with user_code(what, function), warned_if_slow(SLOW_S, slow):
            values = [0.0] * len(responses) if waits else awaited(function(responses), "rewards")
        rewards[name] = _checked(name, values, len(responses))
        total = [t + function.weight * r for t, r in zip(total, rewards[name], strict=True)]
    return rewards, total


def check_rewards(functions: Sequence[RewardFunction]) -> None:
    """Check that reward functions can be added, before the first rollout.

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


def _checked(name: str, values: Any, num_responses: int) -> list[float]:
    if values is None:
        raise ValueError(f"reward function {name!r} returned None, not a list of rewards")
    if isinstance(values, str | bytes | Mapping | Set) or not isinstance(values, Collection):
        raise ValueError(
            f"reward function {name!r} returned {_short(values)}, not a list of rewards"
        )
    if len(values) != num_responses:
        raise ValueError(
            f"reward function {name!r} returned {len(values)} rewards for {num_responses} responses"
        )
    rewards: list[float] = []
    for number, value in enumerate(values, start=1):
        try:
            finite = math.isfinite(value)
        except (TypeError, ValueError, OverflowError, RuntimeError):
            finite = False
        if not finite:
            raise ValueError(
                f"reward function {name!r} returned {_short(value)} for response {number} of"
                f" {num_responses}, not a finite number"
            )
        rewards.append(float(value))
    return rewards


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # an int of more digits than Python prints
        return f"an {type(value).__name__} too long to print"
    return text if len(text) <= 80 else text[:80] + "…"
