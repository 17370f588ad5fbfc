"""Adapters for other libraries' text environments: Gymnasium, skyrl-gym, TextArena, GEM."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping
from typing import Any

from r1lit.environments.base import Environment, Episode, Reply, StepResult
from r1lit.environments.tools import awaited, imported, verdict_of
from r1lit.problems import Problem
from r1lit.text.prompts import Conversation, extended, question_of
from r1lit.user_code import user_code


class StepEpisode(Episode):
    """Hands replies to ``env.step`` and its observations back.

    ``step`` returns (observation, reward, terminated, truncated, info), the same with one flag, or
    skyrl-gym's mapping of observations, reward and done.
    """

    def __init__(self, env: Any, right_at: float) -> None:
        self.env = env
        self.right_at = right_at

    def step(self, reply: Reply) -> StepResult:
        """Take the reply as an action."""
        start = time.perf_counter()
        result = awaited(self.env.step(reply.text))
        if isinstance(result, Mapping):
            observation, info = result.get("observations"), result.get("metadata") or {}
            reward, done = result["reward"], result["done"]
        else:
            observation, reward, *flags, info = result
            done = any(flags)
        reward = float(reward)
        if not done:
            return StepResult(messages=_messages(observation), reward=reward)
        won = info.get("success", info.get("is_success")) if isinstance(info, Mapping) else None
        right = reward >= self.right_at if won is None else bool(won)
        reason = "" if right else f"ended with a reward of {reward:g}"
        return StepResult(reward=reward, verdict=verdict_of(float(right), start, reason))

    def close(self) -> None:
        """Close the environment, if it can be."""
        awaited(getattr(self.env, "close", lambda: None)())


def _takes_seed(env: Any) -> bool:
    takes = inspect.signature(env.reset).parameters
    return "seed" in takes or any(p.kind is p.VAR_KEYWORD for p in takes.values())


def _messages(observation: Any) -> tuple[dict[str, Any], ...]:
    """Return an observation as messages: a text, or skyrl-gym's list of them."""
    if isinstance(observation, list | tuple) and all(isinstance(m, Mapping) for m in observation):
        return tuple(dict(message) for message in observation)
    return ({"role": "user", "content": str(observation)},)


class StepEpisodes(Environment):
    """Episodes of an environment with ``reset`` and ``step``, whose actions are the model's texts.

    ``reset(seed=…)`` begins all responses to a problem alike: the seed is the problem's
    ``meta["seed"]``, or 0. Its observation follows the question. A last reward of ``right_at`` or
    more is right, unless ``info`` says whether it was a ``success``: some games pay losers.
    The rewards of turns are rewards of their tokens.

    Args:
        make: makes an environment; a class or a function such as ``gymnasium.make``, or its path.
        options: keyword arguments of ``make``.
        right_at: the last reward from which an episode is right.
        in_background: whether environments may run in several threads at once.
    """

    def __init__(
        self,
        make: Callable[..., Any] | str,
        options: dict[str, Any] | None = None,
        right_at: float = 1.0,
        in_background: bool = False,
    ) -> None:
        self._name = make if isinstance(make, str) else getattr(make, "__name__", "make")
        self.make = imported("make", make)
        self.options = options or {}
        self.right_at = right_at
        self.in_background = in_background

    def opening(self, problem: Problem) -> str | Conversation:
        """Return the question, and the first observation after it."""
        with user_code(f"data.environments: {self._name}", self):
            env, observation = self._reset(problem)
            awaited(getattr(env, "close", lambda: None)())
        question = question_of(problem)
        return question if observation is None else extended(question, str(observation))

    def takes_seed(self) -> bool:
        """Return whether an environment begins as its seed says; makes one to look."""
        env = self.make(**self.options)
        found = hasattr(env, "reset") and _takes_seed(env)
        awaited(getattr(env, "close", lambda: None)())
        return found

    def begin(self, problem: Problem, seed: int) -> StepEpisode:
        """Return an episode with an environment of its own."""
        env, _ = self._reset(problem)
        return StepEpisode(env, self.right_at)

    def _reset(self, problem: Problem) -> tuple[Any, Any]:
        env = self.make(**self.options)
        if not hasattr(env, "reset"):  # skyrl-gym
            awaited(env.init([{"role": "user", "content": problem.question}]))
            return env, None
        seed = {"seed": int(problem.meta.get("seed", 0))}
        found = awaited(env.reset(**(seed if _takes_seed(env) else {})))
        return env, found[0] if isinstance(found, tuple) else found
