"""What a reward function is: a named callable whose number is a reward."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence

from r1lit.batches import Response


class RewardFunction(ABC):
    """Scores responses. ``weight`` multiplies its numbers in the sum a policy is trained on.

    ``name`` is the key its numbers are logged under; a class that sets none is named by its class
    name: ``class MyReward`` is ``my_reward``. In training it counts from iteration
    ``from_iteration`` on; before, it is 0 and not computed.
    """

    name: str
    weight: float = 1.0
    from_iteration: int = 0

    def __init__(self, weight: float = 1.0) -> None:
        self.weight = weight

    def __init_subclass__(cls) -> None:
        if not hasattr(cls, "name"):
            cls.name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()

    @abstractmethod
    def __call__(self, responses: Sequence[Response]) -> list[float]:
        """Return one unweighted number a response, in order."""

    def applies(self, response: Response) -> bool:
        """Whether it has anything to say about a response; an evaluation asks before it measures.

        In training every response gets its reward, which is 0 where a function does not apply.
        """
        return True
