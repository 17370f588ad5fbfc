"""Beam search over steps, as search-and-learn has it (Hugging Face, 2024; Snell et al. 2024)."""

from __future__ import annotations

from collections.abc import Sequence

from r1lit.errors import check_at_least
from r1lit.search.base import ScoredResponse, Search, SearchResult
from r1lit.search.partial_response import PartialResponse, distinct
from r1lit.search.scorers import Scorer
from r1lit.search.steps import SearchState, Step, StepGenerator
from r1lit.text.steps import AGGREGATES, Aggregate


class BeamSearch(Search):
    """Continues the n / beam_width most promising partial responses by a step, in n ways together.

    A round generates n steps (the first one n first steps), scores what they end on and keeps the
    best that have not ended; equal ones are one. Responses that end are put aside, and the best of
    those is chosen. It stops when n have ended, when none is left to continue, or after
    ``num_iterations`` rounds, of which the last generates to the end.

    The defaults of beam width, iterations and aggregate are search-and-learn's, which samples at
    temperature 0.8. Different from it: equal partial responses are merged by default, and no
    response is repeated to make n.

    Args:
        scorer: scores partial responses, and whole ones.
        n: steps a round.
        beam_width: into how many a kept response is continued; n is a multiple of it.
        num_iterations: the most rounds.
        step: where a step ends.
        aggregate: what a response's worth is of its steps' scores: the last, the smallest, or
            their product.
        token_budget: the most tokens that one search may generate; null for any number.
    """

    def __init__(
        self,
        scorer: Scorer,
        n: int = 16,
        beam_width: int = 4,
        num_iterations: int = 40,
        step: Step = Step(),
        aggregate: Aggregate = "last",
        token_budget: int | None = None,
    ) -> None:
        super().__init__(scorer, token_budget)
        check_at_least("beam_width", beam_width, 1)
        check_at_least("n", n, 1)
        check_at_least("num_iterations", num_iterations, 1)
        if n % beam_width:
            raise ValueError(f"n: {n} is not a multiple of beam_width {beam_width}")
        self.n = n
        self.beam_width = beam_width
        self.num_iterations = num_iterations
        self.step = step
        self.aggregate = aggregate

    def find(self, states: Sequence[SearchState], steps: StepGenerator) -> list[SearchResult]:
        """Return one result an state."""
        found = self.candidates(states, steps, self.n)
        return [
            SearchResult(
                chosen=self.choose(own), candidates=tuple(own), num_tokens=state.num_tokens
            )
            for state, own in zip(states, found, strict=True)
        ]

    def candidates(
        self, states: Sequence[SearchState], steps: StepGenerator, num_steps: int
    ) -> list[list[ScoredResponse]]:
        """Return what searches of ``num_steps`` steps a round find: all that end, or those kept."""
        ended: list[list[PartialResponse]] = [[] for _ in states]
        kept: list[list[PartialResponse]] = [[] for _ in states]
        starts = [[state.start()] * num_steps for state in states]
        for iteration in range(self.num_iterations):
            is_last = iteration + 1 == self.num_iterations
            asked = zip(states, starts, strict=True)
            generated = steps.finish(asked) if is_last else steps.generate(asked, self.step)
            children = self.scored([distinct(own) for own in generated])
            for index, own in enumerate(children):
                starts[index] = []
                if own:  # else its budget is spent, and the kept ones stay
                    ended[index] += [r for r in own if not r.goes_on]
                    kept[index] = self.keep(own)
                    if len(ended[index]) < num_steps:
                        starts[index] = spread(kept[index], num_steps)
            if not any(starts):
                break
        return [
            [ScoredResponse(response=r, score=self.worth(r)) for r in whole or cut]
            for whole, cut in zip(ended, kept, strict=True)
        ]

    def keep(self, responses: Sequence[PartialResponse]) -> list[PartialResponse]:
        """Return which responses of a round to continue, the best first."""
        going = [response for response in responses if response.goes_on]
        return sorted(going, key=self.worth, reverse=True)[: self.n // self.beam_width]

    def worth(self, response: PartialResponse) -> float:
        """Return a response's aggregated score."""
        return AGGREGATES[self.aggregate](response.scores)


def spread(responses: Sequence[PartialResponse], num: int) -> list[PartialResponse]:
    """Return ``num`` responses, equal ones side by side: each as often, the first ones once more.

    >>> spread("abc", 8)
    ['a', 'a', 'a', 'b', 'b', 'b', 'c', 'c']
    """
    each, more = divmod(num, max(1, len(responses)))
    return [r for i, r in enumerate(responses) for _ in range(each + (i < more))]
