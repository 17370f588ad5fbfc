"""What searches and scorers speak of: queries, and responses as far as they have been generated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from r1lit.problems import Problem
from r1lit.rollout import Completion
from r1lit.rollout.engine import FinishReason


@dataclass(frozen=True, kw_only=True)
class Query:
    """What one search answers: a problem and its prompt (token ids).

    ``sample`` names the random numbers: searches of one query under other names are independent.
    """

    problem: Problem
    prompt: tuple[int, ...]
    sample: int = 0


@dataclass(frozen=True, kw_only=True)
class PartialResponse:
    """A response to a query as far as it has been generated.

    ``token_ids`` hold its end token, if it has one; ``text`` is without special tokens.
    ``finish_reason`` is None while it can go on. ``scores`` are those of its steps so far, the last
    one that of all of it.
    """

    query: Query
    token_ids: tuple[int, ...] = ()
    text: str = ""
    finish_reason: FinishReason | None = None
    scores: tuple[float, ...] = ()

    @property
    def finished(self) -> bool:
        """Whether it ended by itself."""
        return self.finish_reason == "stop"

    @property
    def goes_on(self) -> bool:
        """Whether another step may follow: it has not ended, nor reached the token limit."""
        return self.finish_reason is None

    def with_score(self, score: float) -> PartialResponse:
        """Return it with the score of its last step."""
        return replace(self, scores=(*self.scores, score))

    def completion(self) -> Completion:
        """Return it as an engine would: one that could go on counts as cut."""
        return Completion(
            token_ids=torch.tensor(self.token_ids, dtype=torch.long),
            finish_reason=self.finish_reason or "length",
        )


def distinct(responses: Sequence[PartialResponse]) -> list[PartialResponse]:
    """Return the responses without repeats, in order."""
    return list({response.token_ids: response for response in responses}.values())
