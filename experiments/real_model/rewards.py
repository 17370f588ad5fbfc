"""A reward for a form alone: a number that can be read, right or wrong."""

from __future__ import annotations

from collections.abc import Sequence

from r1lit.problems import Response
from r1lit.rewards import RewardFunction


class EndsInNumber(RewardFunction):
    """1 for a response that ended by itself and in which an answer was read, else 0."""

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        """Return one number a response, in order."""
        read = ("right", "wrong")
        return [float(r.finished and r.verdict.status in read) for r in responses]
