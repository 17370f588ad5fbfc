"""The accuracy reward."""

from __future__ import annotations

from collections.abc import Sequence

from r1lit.batches import Response
from r1lit.rewards.base import RewardFunction


class Accuracy(RewardFunction):
    """1 for a right answer, else 0: the rule-based reward of DeepSeek-R1-Zero.

    It repeats the verdict. A time-out or an error of the verifier gives 0 like a wrong answer; the
    verdict's status still distinguishes them.

    Args:
        weight: multiplies its numbers in the sum of rewards.
    """

    name = "accuracy"

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        """Return each verdict's value."""
        return [response.verdict.value for response in responses]
