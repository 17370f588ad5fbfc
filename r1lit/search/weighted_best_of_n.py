"""Weighted best-of-n: the answer whose responses have the largest sum of scores."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from r1lit.search.base import ScoredResponse
from r1lit.search.best_of_n import BestOfN
from r1lit.search.partial_response import PartialResponse
from r1lit.search.scorers import Scorer
from r1lit.verifiers import Grader, default_verifiers


class EqualWeights(Scorer):
    """Scores every response 1."""

    def score(self, responses: Sequence[PartialResponse]) -> list[float]:
        """Return ones."""
        return [1.0] * len(responses)


class WeightedBestOfN(BestOfN):
    """Generates n responses; takes the answer of the largest sum of scores, in its best response.

    Equal answers are those of one canonical form (`Verdict.canonical`); a response without one
    casts no vote, and if none casts any, it is best-of-n. Sums need scores of at least 0: take
    `Sigmoid` where they are any numbers.

    Args:
        scorer: scores whole responses; if left out all weigh the same, which is majority vote.
        n: how many are generated.
        grader: reads the answers; the default of an evaluation if left out. It is the search's own.
        token_budget: the most tokens that one search may generate; null for any number.
    """

    def __init__(
        self,
        scorer: Scorer | None = None,
        n: int = 16,
        grader: Grader | None = None,
        token_budget: int | None = None,
    ) -> None:
        super().__init__(scorer or EqualWeights(), n, token_budget)
        self.grader = grader or Grader(default_verifiers(last_expression=True))

    def choose(self, candidates: Sequence[ScoredResponse]) -> ScoredResponse:
        """Return the best response of the answer with the largest sum; the first among equals.

        Raises:
            ValueError: if a score is negative.
        """
        lowest = min(candidate.score for candidate in candidates)
        if lowest < 0:
            raise ValueError(
                f"scorer: {type(self.scorer).__name__} gave {lowest}, and weights are at least 0;"
                " r1lit.search.Sigmoid makes such of any scores"
            )
        responses = [candidate.response for candidate in candidates]
        verdicts = self.grader.verdicts(
            [r.text for r in responses], [r.query.problem for r in responses]
        )
        voters: dict[str, list[ScoredResponse]] = defaultdict(list)
        for candidate, verdict in zip(candidates, verdicts, strict=True):
            if verdict.canonical is not None:
                voters[verdict.canonical].append(candidate)
        if not voters:
            return super().choose(candidates)
        return super().choose(max(voters.values(), key=lambda own: sum(c.score for c in own)))

    def close(self) -> None:
        """Release what scorer and grader have started."""
        super().close()
        self.grader.close()
