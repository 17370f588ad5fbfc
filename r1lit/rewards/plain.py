"""Plain callables as reward functions, as YAML names them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from jsonargparse import Namespace
from jsonargparse.typing import register_type

from r1lit.batches import Response
from r1lit.errors import import_path
from r1lit.rewards.base import RewardFunction

Scores = Callable[..., Sequence[float]]

_CALLED = (
    "it is called with a list of responses, then init_args; each has text, num_tokens,"
    " problem.answer and problem.meta"
)


class PlainReward(RewardFunction):
    """A plain callable as a reward function: it takes the responses and returns one number each.

    In YAML ``class_path`` names the function itself, or a class whose instances are called, and
    ``init_args`` holds ``weight``, ``name`` and the keyword arguments of the function (or of the
    class)::

        rewards:
          - class_path: my_rewards.brevity        # def brevity(responses, limit=100): ...
            init_args: {limit: 50, weight: 0.1}

    Args:
        function: called with the sequence of responses and ``options``.
        weight: multiplies its numbers in the sum.
        name: what its numbers are logged under; the function's or class's own name if left out.
        options: keyword arguments for every call.
    """

    own_keys = ("weight", "name")
    """Of ``init_args``: those that are not the callable's."""

    def __init__(
        self,
        function: Scores,
        weight: float = 1.0,
        name: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(weight)
        if not callable(function):
            raise ValueError(f"rewards: {function!r} cannot be called")
        self.function = partial(function, **options) if options else function
        self.name = str(name or getattr(function, "__name__", type(function).__name__))
        self.spec: dict[str, Any] = {}

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        """Return the function's numbers; ``score`` checks them."""
        return self.function(responses)  # type: ignore[return-value]

    @classmethod
    def from_spec(cls, spec: Any) -> PlainReward:
        """Return the plain reward of ``{"class_path": …, "init_args": …}`` or from a dotted path.

        Raises:
            ValueError: if the path names no callable, or its arguments do not fit.
        """
        if isinstance(spec, PlainReward):
            return spec
        if isinstance(spec, Namespace):  # read as a RewardFunction's already
            raise TypeError("the configuration is that of a RewardFunction")
        entries: dict[str, Any] = {"class_path": spec} if isinstance(spec, str) else dict(spec)
        unknown = set(entries) - {"class_path", "init_args"}
        path = entries.get("class_path")
        if unknown or not isinstance(path, str):
            raise ValueError(f"{spec!r} is not a class_path with init_args")
        arguments = dict(entries.get("init_args") or {})
        weight, name = arguments.pop("weight", 1.0), arguments.pop("name", None)
        if not isinstance(weight, int | float):
            raise ValueError(f"weight: that of {path!r} is {weight!r}, not a number")
        found = import_path(path, "class_path")
        _check_callable(path, found)
        _check_arguments(path, found, arguments)
        if inspect.isclass(found):
            made: Any = found(**arguments)
            reward = cls(made, weight, name or found.__name__)
        else:
            reward = cls(found, weight, name, arguments)
        options = {**arguments, "weight": weight, **({"name": name} if name else {})}
        reward.spec = {"class_path": path, "init_args": options}
        return reward


Reward = PlainReward | RewardFunction
"""The types of rewards in YAML, in the order in which the parser tries them."""


def as_reward(function: RewardFunction | Scores) -> RewardFunction:
    """Return ``function`` if it is a reward function, else the plain callable as one.

    Raises:
        ValueError: if it cannot be called.
    """
    return function if isinstance(function, RewardFunction) else PlainReward(function)


def _check_callable(path: str, found: Any) -> None:
    if inspect.isclass(found) and issubclass(found, RewardFunction):
        raise ValueError(f"{path!r} is a RewardFunction whose init_args do not fit")
    if not callable(found) or (inspect.isclass(found) and "__call__" not in dir(found)):
        raise ValueError(f"{path!r} is neither a function nor a class of callables")


def _check_arguments(path: str, found: Any, arguments: Mapping[str, Any]) -> None:
    try:
        signature = inspect.signature(found)
    except ValueError:  # a builtin without one
        return
    try:
        if inspect.isclass(found):
            signature.bind(**arguments)
        else:
            signature.bind([], **arguments)
    except TypeError as error:
        how = "" if inspect.isclass(found) else f"; {_CALLED}"
        raise ValueError(f"the init_args of {path!r} do not fit: {error}{how}") from error


register_type(
    PlainReward,
    serializer=lambda reward: reward.spec,
    deserializer=PlainReward.from_spec,
    deserializer_exceptions=(ValueError, TypeError),
)
