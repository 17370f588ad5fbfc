"""A penalty for repeated text."""

from __future__ import annotations

from collections.abc import Sequence

from r1lit.batches import Response
from r1lit.errors import check_at_least
from r1lit.metrics.words import repeated_share
from r1lit.rewards.base import RewardFunction


class Repetition(RewardFunction):
    """Minus the share of n-grams that came before in the response, from -1 to 0.

    The n-gram penalty of "Demystifying Long CoT" (arXiv 2502.03373) punishes each token of a
    repeated n-gram; here it is one number a response: (unique n-grams / n-grams) - 1, and 0 for a
    response shorter than n. Words, single Han and kana characters, and punctuation marks are the
    grams, in lower case. With n = 2, "a b a b a b" has 5 bigrams, 2 unique: -0.6.

    Args:
        n: how many words make an n-gram.
        weight: multiplies its numbers in the sum of rewards.
    """

    name = "repetition"

    def __init__(self, n: int = 20, weight: float = 1.0) -> None:
        super().__init__(weight)
        check_at_least("n", n, 1)
        self.n = n

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        """Return a number from -1 to 0 a response."""
        return [-repeated_share(response.text, self.n) for response in responses]
