"""What a reward function is: a named callable whose number is a reward."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from r1lit.batches import Response


class RewardFunction(ABC):
    """Scores responses. ``weight`` multiplies its numbers in the sum a policy is trained on."""

    name: str

    def __init__(self, weight: float = 1.0) -> None:
        self.weight = weight

    @abstractmethod
    def __call__(self, responses: Sequence[Response]) -> list[float]:
        """Return one unweighted number a response, in order."""
