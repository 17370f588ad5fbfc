"""Diverse verifier tree search: independent greedy searches (Beeching et al. 2024)."""

from __future__ import annotations

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from r1lit.rollout import RolloutEngine, Sampling
from r1lit.search.base import SearchResult
from r1lit.search.beam import BeamSearch
from r1lit.search.partial_response import PartialResponse
from r1lit.search.steps import SearchState, StepGenerator


class DVTS(BeamSearch):
    """n / beam_width subtrees; each goes on from the best alone of its beam_width steps a round.

    So a scorer's mistake costs one subtree, where beam search may lose all others to it. A subtree
    ends when its best step ends a response. Its candidates are all responses that ended on the way
    (search-and-learn's are those of its last round). Each has an equal part of the budget, and
    generates the same however many others there are.

    Args:
        scorer: scores partial responses, and whole ones.
        n: steps a round, of all subtrees together.
        beam_width: steps a round of one subtree; n is a multiple of it.
        num_iterations: the most rounds; the last generates to the end.
        step: where a step ends.
        aggregate: what a response's worth is of its steps' scores: the last, the smallest, or
            their product.
        token_budget: the most tokens that one search may generate; null for any number.
    """

    def check(
        self, engine: RolloutEngine, sampling: Sampling, tokenizer: PreTrainedTokenizerBase
    ) -> None:
        """Check that these can be searched with, and that each subtree has a budget.

        Raises:
            ValueError: if not.
        """
        super().check(engine, sampling, tokenizer)
        num = self.n // self.beam_width
        if self.token_budget is not None and self.token_budget < num:
            raise ValueError(
                f"token_budget: {self.token_budget} is less than a token for each of {num} subtrees"
            )

    def find(self, states: Sequence[SearchState], steps: StepGenerator) -> list[SearchResult]:
        """Return one result an state."""
        num = self.n // self.beam_width
        budget = None if self.token_budget is None else self.token_budget // num
        subtrees = [SearchState(a.query, budget, subtree) for a in states for subtree in range(num)]
        found = self.candidates(subtrees, steps, self.beam_width)
        results = []
        for first in range(0, len(subtrees), num):
            own = [c for candidates in found[first : first + num] for c in candidates]
            results.append(
                SearchResult(
                    chosen=self.choose(own),
                    candidates=tuple(own),
                    num_tokens=sum(s.num_tokens for s in subtrees[first : first + num]),
                )
            )
        return results

    def keep(self, responses: Sequence[PartialResponse]) -> list[PartialResponse]:
        """Return the best response of a subtree's round, if it has not ended."""
        best = max(responses, key=self.worth)
        return [best] if best.goes_on else []
