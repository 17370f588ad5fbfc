"""The penalty of responses near the token limit."""

from __future__ import annotations

from collections.abc import Sequence

from r1lit.batches import Response
from r1lit.rewards.base import RewardFunction


class Overlong(RewardFunction):
    """Soft overlong punishment, DAPO (arXiv 2503.14476), Eq. 13.

    With L = ``max_tokens``, C = ``buffer_tokens`` and n the tokens of the response::

        0 if n <= L - C;    ((L - C) - n) / C if L - C < n <= L;    -1 if n > L

    Beyond the paper: a response that did not finish gets -1 at any length. With L = 100 and C = 20,
    90 tokens give -0.5.

    Args:
        max_tokens: L, the longest response there can be.
        buffer_tokens: C, over how many tokens before that the punishment grows.
        weight: multiplies its numbers in the sum of rewards.
    """

    name = "overlong"

    def __init__(self, max_tokens: int, buffer_tokens: int, weight: float = 1.0) -> None:
        super().__init__(weight)
        if not 0 < buffer_tokens < max_tokens:
            raise ValueError(
                f"buffer_tokens: {buffer_tokens} is not between 1 and max_tokens - 1 ="
                f" {max_tokens - 1}"
            )
        self.max_tokens = max_tokens
        self.buffer_tokens = buffer_tokens

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        """Return a number from -1 to 0 a response."""
        return [self._punishment(r.num_tokens) if r.finished else -1.0 for r in responses]

    def _punishment(self, num_tokens: int) -> float:
        excess = num_tokens - (self.max_tokens - self.buffer_tokens)
        return -min(1.0, excess / self.buffer_tokens) if excess > 0 else 0.0
