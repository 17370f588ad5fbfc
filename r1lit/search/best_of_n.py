"""Best-of-n: of n whole responses the one with the largest score."""

from __future__ import annotations

from collections.abc import Sequence

from r1lit.errors import check_at_least
from r1lit.search.base import ScoredResponse, Search, SearchResult
from r1lit.search.scorers import Scorer
from r1lit.search.steps import SearchState, StepGenerator


class BestOfN(Search):
    """Generates n whole responses and takes the one with the largest score.

    Under a budget the responses share it equally; what those leave over that end early goes to
    those that have not ended.

    Args:
        scorer: scores whole responses.
        n: how many are generated.
        token_budget: the most tokens that one search may generate; null for any number.
    """

    def __init__(self, scorer: Scorer, n: int = 16, token_budget: int | None = None) -> None:
        super().__init__(scorer, token_budget)
        check_at_least("n", n, 1)
        self.n = n

    def find(self, states: Sequence[SearchState], steps: StepGenerator) -> list[SearchResult]:
        """Return one result an state."""
        found = steps.finish((state, [state.start()] * self.n) for state in states)
        responses = self.scored(found)
        return [
            self._result(state, [ScoredResponse(response=r, score=r.scores[-1]) for r in own])
            for state, own in zip(states, responses, strict=True)
        ]

    def _result(self, state: SearchState, candidates: list[ScoredResponse]) -> SearchResult:
        return SearchResult(
            chosen=self.choose(candidates),
            candidates=tuple(candidates),
            num_tokens=state.num_tokens,
        )
