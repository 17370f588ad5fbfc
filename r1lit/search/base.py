"""The interface of searches: queries in, for each the response that was found."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedTokenizerBase

from r1lit.errors import check_at_least
from r1lit.policy.source import policy_fingerprint
from r1lit.rollout import RolloutEngine, Sampling
from r1lit.search.generation import PartialResponse, Query, SearchState, Step, StepGenerator
from r1lit.search.scorers import Scorer


@dataclass(frozen=True, kw_only=True)
class ScoredResponse:
    """A response that a search has found, and its score."""

    response: PartialResponse
    score: float


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """Result of a search: the response it chose, all it could choose from, and its cost.

    ``num_tokens`` counts every token that was generated, those of dropped steps too. Prefixes that
    were read again are not counted: engines keep them (siblings share one in process, vLLM's
    prefix cache serves the rest).
    """

    chosen: ScoredResponse
    candidates: tuple[ScoredResponse, ...]
    num_tokens: int

    def summary(self) -> dict[str, float]:
        """Return its numbers: the chosen response's score, candidates and generated tokens."""
        return {
            "score": self.chosen.score,
            "num_candidates": len(self.candidates),
            "num_tokens": self.num_tokens,
        }


class Search(ABC):
    """Finds a response to each query with an engine and a scorer. A subclass defines ``find``.

    It is a function of engine, sampling, seed and queries; each query's result depends on that
    query alone, up to the rounding of logits, and so does its budget.

    Args:
        scorer: says how promising a response is.
        token_budget: the most tokens that one search may generate; null for any number. It is
            never exceeded. Where it ends the search before any response has ended, the chosen
            one is cut.
    """

    def __init__(self, scorer: Scorer, token_budget: int | None = None) -> None:
        check_at_least("token_budget", token_budget, 1)
        self.scorer = scorer
        self.token_budget = token_budget

    def check(
        self, engine: RolloutEngine, sampling: Sampling, tokenizer: PreTrainedTokenizerBase
    ) -> None:
        """Check that these can be searched with.

        Raises:
            ValueError: if the engine returns no tokens, all responses would be the same, or the
                scorer cannot read the policy's tokens.
        """
        if not engine.capabilities.tokens:
            raise ValueError(
                f"engine: {type(engine).__name__} returns no token ids, by which a search continues"
                " responses; use r1lit.rollout.InProcessEngine or VLLMEngine"
            )
        if sampling.temperature == 0:
            raise ValueError(
                "sampling.temperature: 0 generates the same response every time, so that there is"
                " nothing to search; search-and-learn takes 0.8"
            )
        self.scorer.check(tokenizer)

    def run(
        self, queries: Sequence[Query], engine: RolloutEngine, sampling: Sampling, seed: int
    ) -> list[SearchResult]:
        """Search all queries together, a round of all of them in one call of the engine.

        ``sampling.max_tokens`` is of a whole response.

        Raises:
            ValueError: as ``check``, or if a score is not a finite number.
        """
        self.check(engine, sampling, engine.model.tokenizer)
        states = [SearchState(query, self.token_budget) for query in queries]
        return self.find(states, StepGenerator(engine=engine, sampling=sampling, seed=seed))

    @abstractmethod
    def find(self, states: Sequence[SearchState], steps: StepGenerator) -> list[SearchResult]:
        """Return one result per state."""

    def scored(self, found: Sequence[Sequence[PartialResponse]]) -> list[list[PartialResponse]]:
        """Return the responses with their scores, all from one call of the scorer."""
        responses = [response for own in found for response in own]
        scores = self.scorer.score(responses) if responses else []
        name = type(self.scorer).__name__
        if len(scores) != len(responses):
            raise ValueError(
                f"scorer: {name} returned {len(scores)} scores for {len(responses)} responses"
            )
        bad = [score for score in scores if not math.isfinite(score)]
        if bad:
            raise ValueError(f"scorer: {name} returned {bad[0]}, not a finite number")
        left = iter(scores)
        return [[response.with_score(next(left)) for response in own] for own in found]

    def choose(self, candidates: Sequence[ScoredResponse]) -> ScoredResponse:
        """Return the best: one that has ended before one that was cut, then the largest score."""
        return max(candidates, key=lambda c: (c.response.finished, c.score))

    def describe(self) -> dict[str, Any]:
        """Return the report's entries: the settings of search and scorer."""
        described: dict[str, Any] = _described(self)
        return described

    def close(self) -> None:
        """Release the resources of the scorer."""
        self.scorer.close()


def _described(part: Any) -> Any:
    if part is None or isinstance(part, str | int | float):
        return part
    settings = {}
    if isinstance(part, Search | Scorer | Step):
        settings = {key: value for key, value in vars(part).items() if not key.startswith("_")}
    elif hasattr(part, "path"):
        settings = {"path": str(part.path)}
    described = {key: _described(value) for key, value in settings.items()}
    if "path" in settings:
        described["fingerprint"] = policy_fingerprint(settings["path"])
    return {"class": type(part).__name__, **described}
