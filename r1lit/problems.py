"""A problem, a response to it and its verdict, as text: what a verifier sees and says.

`r1lit.batches` has them too, beside the tensors. No torch here: its import takes seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["right", "wrong", "unparsed", "timeout", "error"]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A question with its gold answer and source, before templating.

    ``verifier`` names the verifier that decides about responses to it; ``meta`` carries what that
    verifier needs beyond the gold answer (Countdown: ``numbers`` and ``target``).
    """

    uid: str
    question: str
    answer: str
    source: str
    verifier: str = "math"
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A verifier's decision about one response.

    ``value`` is 1.0 or 0.0. ``canonical`` is the key under which majority vote counts the answer;
    ``None`` casts no vote. ``reason`` says in words why an answer lost. ``seconds`` is the time the
    decision took.
    """

    value: float
    status: Status
    canonical: str | None
    reason: str
    seconds: float = 0.0

    def __post_init__(self) -> None:
        assert 0.0 <= self.value <= 1.0, self.value
        assert (self.value == 1.0) == (self.status == "right"), (self.value, self.status)


@dataclass(frozen=True, kw_only=True)
class Response:
    """One response as text, with the problem it answers and its verdict.

    ``num_tokens`` counts response tokens including EOS. ``finished`` is false when the response
    was cut at the token limit.
    """

    text: str
    problem: Problem
    verdict: Verdict
    num_tokens: int
    finished: bool
