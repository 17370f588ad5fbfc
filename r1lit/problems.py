"""Problems, responses and verdicts as text: the input and output of a verifier.

`r1lit.batches` exports them too. No torch here: its import takes seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

LETTERS = "ABCDEFGHIJ"
"""The letters of multiple-choice options; more options are refused."""
Status = Literal["right", "wrong", "unparsed", "timeout", "error"]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A question with its gold answer and source, before templating.

    ``verifier`` names the verifier of its responses, and ``environment`` what they act in, if it is
    more than a single turn; ``meta`` holds what that verifier needs
    besides the gold answer (Countdown: ``numbers`` and ``target``).
    """

    uid: str
    question: str
    answer: str
    source: str
    verifier: str = "math"
    environment: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A verifier's decision about one response.

    ``value`` is from 0 to 1; 1.0 exactly if right. ``canonical`` is the key under which majority
    vote counts the answer; ``None`` casts no vote. ``reason`` says why a response is not right.
    ``seconds`` is the time of the decision. ``details`` holds what a suite's score reads besides
    the value, such as a judge's label.
    """

    value: float
    status: Status
    canonical: str | None
    reason: str
    seconds: float = 0.0
    details: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert 0.0 <= self.value <= 1.0, self.value
        assert (self.value == 1.0) == (self.status == "right"), (self.value, self.status)


Ended = Literal["answered", "environment", "turns", "length", "invalid", "failed"]
"""The end of an episode: by the model's answer, by the environment, at a limit, or by a fault."""


@dataclass(frozen=True, kw_only=True)
class Transcript:
    """The course of an episode of several turns.

    ``messages`` are the turns after the prompt, the model's and the environment's; ``text`` is what
    verifiers and rewards read: words of the model alone. ``verdict`` is the environment's, None
    where the problem's verifier decides. ``turn_ends`` counts the response tokens up to the end of
    each turn of the model, and ``turn_rewards`` are what the environment gave for them. ``seconds``
    are those that the environment took.
    """

    messages: tuple[Mapping[str, Any], ...]
    text: str
    ended: Ended
    verdict: Verdict | None = None
    turn_ends: tuple[int, ...] = ()
    turn_rewards: tuple[float, ...] = ()
    num_calls: int = 0
    num_invalid: int = 0
    seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True, kw_only=True)
class Response:
    """One response as text, with the problem it answers and its verdict.

    ``num_tokens`` counts response tokens including EOS; ``num_environment_tokens`` of them were not
    sampled but written by an environment. ``finished`` is false when the response was cut at the
    token limit. ``version`` is that of the sampling weights, at its first token if they changed, in
    updates, if the engine reports it. ``group`` is the number of its prompt in a rollout.
    """

    text: str
    problem: Problem
    verdict: Verdict
    num_tokens: int
    finished: bool
    version: int | None = None
    num_environment_tokens: int = 0
    transcript: Transcript | None = None
    group: int | None = None

    @property
    def group_id(self) -> int | str:
        """The key that the responses of one group share, and no others.

        A problem may come twice in one rollout, so in one it is the group's number; outside of a
        rollout, the problem's ``uid``.
        """
        return self.problem.uid if self.group is None else self.group

    @property
    def num_sampled(self) -> int:
        """Number of tokens that the policy has sampled."""
        return self.num_tokens - self.num_environment_tokens
