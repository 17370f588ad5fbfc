"""The interface of environments, and the single turn: a response, then its verdict.

    Environment.begin(problem, seed) -> Episode        Episode.step(reply) -> StepResult

An environment exchanges messages; only r1lit handles tokens. A `Reply` is one turn of the model. A
`StepResult` is the environment's response to it: messages after which the model continues, a reward
of the turn, or the verdict that ends the episode.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from r1lit.errors import check_above, check_at_least, check_between
from r1lit.problems import Problem, Verdict
from r1lit.text.prompts import Conversation, Message, question_of


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """A call that a model wrote. An empty ``name`` means the only tool there is."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    id: str = ""


@dataclass(frozen=True, kw_only=True)
class Reply:
    """A turn of the model.

    ``text`` is without special tokens. ``error`` says why a call in it could not be read.
    ``finished`` is false where the token limit cut it.
    """

    text: str
    calls: tuple[ToolCall, ...] = ()
    error: str = ""
    finished: bool = True


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """An environment's response to a reply.

    Without messages the episode is over. It then has a ``verdict``; if it has none, the problem's
    verifier decides about ``answer``, such as a patch, or about the reply. ``invalid``
    marks a reply that the environment could not use, such as a call of a tool that does not exist.
    """

    messages: tuple[Message, ...] = ()
    reward: float = 0.0
    verdict: Verdict | None = None
    invalid: bool = False
    answer: str | None = None

    def __post_init__(self) -> None:
        assert not (self.messages and self.verdict), "a verdict ends the episode: no messages"

    def checked(self) -> StepResult:
        """Return this result with a finite number as reward, and messages that hold texts.

        Raises:
            ValueError: naming what an environment may not answer.
        """
        reward = float(self.reward)
        if not math.isfinite(reward):
            raise ValueError(f"a step's reward is {reward}, not a finite number")
        for message in self.messages:
            if not isinstance(message, Mapping):
                raise ValueError(f"a step's message is {message!r:.60}, not a mapping")
            for key in ("role", "content"):
                if not isinstance(message.get(key), str):
                    raise ValueError(
                        f"a step's message has {message.get(key)!r:.60} as its {key}, not a text"
                    )
        if not isinstance(self.answer, str | None):
            raise ValueError(f"a step's answer is {self.answer!r:.60}, not a text")
        if not isinstance(self.verdict, Verdict | None):
            raise ValueError(f"a step's verdict is {self.verdict!r:.60}, not a Verdict")
        return replace(self, reward=reward, messages=tuple(dict(m) for m in self.messages))


class Episode(ABC):
    """One response's way through an environment."""

    @abstractmethod
    def step(self, reply: Reply) -> StepResult:
        """Take the model's turn.

        What a model may do wrong is a message to it, never an exception: an exception is a fault of
        the environment.
        """

    def close(self) -> None:  # noqa: B027 - most have nothing to release
        """Let go of what the episode holds; always called, once."""


class Environment(ABC):
    """Begins episodes. A subclass defines ``begin``."""

    in_background = False
    """True where steps of several episodes may run at once, in threads, while others decode."""

    @property
    def tools(self) -> Sequence[Mapping[str, Any]]:
        """The tools that the model may call, as JSON schemas of functions."""
        return ()

    def tools_of(self, problem: Problem) -> Sequence[Mapping[str, Any]]:
        """Return the tools that the model may call in a problem; all unless a subclass chooses."""
        return self.tools

    def opening(self, problem: Problem) -> str | Conversation:
        """Return the text or turns of the prompt, the same for all responses to the problem."""
        return question_of(problem)

    @abstractmethod
    def begin(self, problem: Problem, seed: int) -> Episode:
        """Return a new episode; ``seed`` names its random numbers."""

    def steps(self, episodes: Sequence[Episode], replies: Sequence[Reply]) -> list[StepResult]:
        """Take a turn of each of some episodes; together where that is faster."""
        return [e.step(r) for e, r in zip(episodes, replies, strict=True)]

    def close(self) -> None:  # noqa: B027
        """Release the resources that the environment has started."""


@dataclass(frozen=True, kw_only=True)
class TurnLimits:
    """Limits of an episode; ``sampling.max_tokens`` limits all that is after its prompt.

    Args:
        max_turns: turns of the model.
        max_turn_tokens: of one turn of the model; null leaves what the response has left.
        max_observation_tokens: of what the environment answers to one turn; more is cut.
        max_invalid: replies in a row that the environment cannot use, after which it ends.
        seconds: of one step of the environment; one that takes longer is a fault.
        max_failed: the share of episodes that may fail, each tried twice; more end the run.
        num_threads: steps that run at once, of environments that work in threads.
    """

    max_turns: int = 8
    max_turn_tokens: int | None = None
    max_observation_tokens: int = 512
    max_invalid: int = 3
    seconds: float = 60.0
    max_failed: float = 0.2
    num_threads: int = 8

    def __post_init__(self) -> None:
        counts = "max_turns", "max_turn_tokens", "max_observation_tokens", "max_invalid"
        for key in (*counts, "num_threads"):
            check_at_least(f"data.limits.{key}", getattr(self, key), 1)
        check_above("data.limits.seconds", self.seconds, 0, finite=False)
        check_between("data.limits.max_failed", self.max_failed, 0, 1)
