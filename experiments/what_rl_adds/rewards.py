"""A reward that knows nothing of the answer."""

from __future__ import annotations

from collections.abc import Sequence

from r1lit.problems import Response
from r1lit.rewards import RewardFunction
from r1lit.seeding import generator


class Coin(RewardFunction):
    """1 or 0 with equal chance, whatever the response says.

    The coin is named by problem and text, so that a resumed run tosses the same one.
    """

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        """Toss a coin for each response."""
        return [
            float(generator(0, "coin", r.problem.uid, r.text).random() < 0.5) for r in responses
        ]
