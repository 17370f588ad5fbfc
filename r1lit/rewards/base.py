"""Reward functions: the interface, plain callables, conditions, and the weighted sum."""

from __future__ import annotations

import importlib
import inspect
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Any

from jsonargparse.typing import register_type

from r1lit.batches import Response
from r1lit.errors import check_at_least, own_code


@dataclass(frozen=True, kw_only=True)
class StepRewards:
    """Rewards of a response's steps, each with the offset into the text at which the step ends."""

    ends: tuple[int, ...] = ()
    rewards: tuple[float, ...] = ()


class RewardFunction(ABC):
    """Returns one reward a response; the reward of training is the sum of all times ``weight``.

    ``name`` is the key of its metrics; the default is the class name in snake_case:
    ``class MyReward`` is ``my_reward``. Before training iteration ``from_iteration`` it is 0 and
    not computed.
    """

    name: str
    weight: float = 1.0
    from_iteration: int = 0

    def __init__(self, weight: float = 1.0) -> None:
        self.weight = weight

    def __init_subclass__(cls) -> None:
        if not hasattr(cls, "name"):
            cls.name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()

    @abstractmethod
    def __call__(self, responses: Sequence[Response]) -> list[float]:
        """Return one unweighted number a response, in order."""

    def step_rewards(self, responses: Sequence[Response]) -> list[StepRewards] | None:
        """Return rewards of single steps, weighted, or None where it rewards whole responses alone.

        In training they are added at the steps' last tokens (``Rollout.reward_BT``), which
        objectives with an advantage of each token read. It is called after the function itself.
        """
        return None

    def applies(self, response: Response) -> bool:
        """Return whether it applies to this response; as an eval metric it skips all others.

        In training every response gets a reward, which is 0 where a function does not apply.
        """
        return True


Scores = Callable[..., Sequence[float]]


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
        """Return what the function returns; ``score`` checks it."""
        return self.function(responses)  # type: ignore[return-value]

    @classmethod
    def from_spec(cls, spec: Any) -> PlainReward:
        """Return the plain reward of ``{"class_path": …, "init_args": …}`` or from a dotted path.

        Raises:
            ValueError: if the path names no callable, or its arguments do not fit.
        """
        if isinstance(spec, PlainReward):
            return spec
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


def import_path(path: str, key: str) -> Any:
    """Return the object at a dotted path.

    Raises:
        ValueError: naming ``key`` and ``path`` if it cannot be imported.
    """
    module, _, name = path.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{key}: {path!r} cannot be imported: {error}") from error


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
        how = "" if inspect.isclass(found) else "; it is called with the responses, then init_args"
        raise ValueError(f"the init_args of {path!r} do not fit: {error}{how}") from error


register_type(
    PlainReward,
    serializer=lambda reward: reward.spec,
    deserializer=PlainReward.from_spec,
    deserializer_exceptions=(ValueError, TypeError),
)


class ConditionalReward(RewardFunction):
    """``reward`` for problems whose ``meta["kind"]`` is one of ``kinds``, and 0 for all others.

    R1's second RL stage adds rules for reasoning and reward models for general prompts (Nature
    645:633, Eq. 8-10), and adds preference rewards in its last 400 of 1,700 steps. Before
    training iteration ``from_iteration`` the reward is 0 and not computed; in evaluation it
    always is. Name and weight are those of ``reward``. Its logged mean is over all responses, with
    the zeros: unweighted, what it adds to the mean reward.

    Args:
        reward: a reward function or a plain callable; it gets only the responses of these kinds.
        kinds: of problems; every problem if left out.
        from_iteration: the first training iteration in which it counts, from 0.
    """

    def __init__(
        self, reward: Reward, kinds: list[str] | None = None, from_iteration: int = 0
    ) -> None:
        self.reward = as_reward(reward)
        super().__init__(self.reward.weight)
        self.name = self.reward.name
        if kinds is not None and not kinds:
            raise ValueError("kinds: an empty list leaves no problem; null means every problem")
        check_at_least("from_iteration", from_iteration, 0, "0 is the first one")
        self.kinds = None if kinds is None else frozenset(kinds)
        self.from_iteration = max(from_iteration, self.reward.from_iteration)

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        """Return the reward of each response, 0 for other kinds.

        Raises:
            ValueError: if ``kinds`` are given and a problem has none, or if the reward does not
                return one number a response.
        """
        rows = [row for row, response in enumerate(responses) if self._is_of_kinds(response)]
        values: Any = self.reward([responses[row] for row in rows]) if rows else []
        if values is None or len(values) != len(rows):
            raise ValueError(
                f"reward function {self.name!r} returned {values!r:.80} for {len(rows)} responses"
            )
        rewards = [0.0] * len(responses)
        for row, value in zip(rows, values, strict=True):
            rewards[row] = value
        return rewards

    def step_rewards(self, responses: Sequence[Response]) -> list[StepRewards] | None:
        """Return the rewards of steps, none for other kinds."""
        rows = [row for row, response in enumerate(responses) if self._is_of_kinds(response)]
        given = self.reward.step_rewards([responses[row] for row in rows])
        if given is None:
            return None
        own = dict(zip(rows, given, strict=True))
        return [own.get(row, StepRewards()) for row in range(len(responses))]

    def applies(self, response: Response) -> bool:
        """Return whether the problem is of ``kinds`` and ``reward`` applies.

        Raises:
            ValueError: if ``kinds`` are given and the problem has none.
        """
        return self._is_of_kinds(response) and self.reward.applies(response)

    def _is_of_kinds(self, response: Response) -> bool:
        if self.kinds is None:
            return True
        problem = response.problem
        kind = problem.meta.get("kind")
        if kind is None:
            raise ValueError(
                f"kinds: problem {problem.uid!r} of source {problem.source!r} has no kind in its"
                f" meta, so the reward {self.name!r} cannot tell whether it applies; a table's"
                " column is kept by meta: [kind]"
            )
        return kind in self.kinds


def score(
    functions: Sequence[RewardFunction | Scores],
    responses: Sequence[Response],
    iteration: int | None = None,
) -> tuple[dict[str, list[float]], list[float]]:
    """Return every reward unweighted and by name, and the weighted sum a response.

    A function is a ``RewardFunction`` or a plain callable, which has its own name and weight 1.
    At a training ``iteration`` before its ``from_iteration`` a function is not called and its
    rewards are 0; without one, as in evaluation, every function is called.

    With accuracy (weight 1) and format (weight 0.1), a right answer in the right format gives
    ``({"accuracy": [1.0], "format": [1.0]}, [1.1])``.

    Raises:
        ValueError: if there is no function, two share a name, a weight is not finite, or one
            crashes or returns ``None``, a wrong number of rewards, or a reward that is not a
            finite number.
    """
    rewarding = [as_reward(function) for function in functions]
    check_rewards(rewarding)
    rewards: dict[str, list[float]] = {}
    total = [0.0] * len(responses)
    for function in rewarding:
        name = function.name
        waits = iteration is not None and iteration < function.from_iteration
        with own_code(f"reward function {name!r}", function):
            values = [0.0] * len(responses) if waits else function(responses)
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
