"""A reward for answers that are valid, right or not."""

from __future__ import annotations

from collections.abc import Sequence

from r1lit.problems import Response
from r1lit.rewards import RewardFunction


class Valid(RewardFunction):
    """1 for an answer that fits its problem's schema, also with wrong values, else 0."""

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        """Return one number a response."""
        return [float(r.verdict.details.get("valid", 0.0)) for r in responses]
