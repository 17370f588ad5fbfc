"""The interface of reward functions."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from r1lit.batches import Response
from r1lit.policy.held import NO_MODELS, HeldModels


@dataclass(frozen=True, kw_only=True)
class StepRewards:
    """Rewards of a response's steps, each with the offset into the text at which the step ends."""

    ends: tuple[int, ...] = ()
    rewards: tuple[float, ...] = ()


class RewardFunction(ABC):
    """Returns one reward a response; the reward of training is the sum of all times ``weight``.

    ``name`` is the key of its metrics; the default is the class name in snake_case:
    ``class MyReward`` is ``my_reward``. Before training iteration ``from_iteration`` it is 0 and
    not computed. ``held`` are models of its own, for the memory plan.
    """

    name: str
    weight: float = 1.0
    from_iteration: int = 0
    held: HeldModels = NO_MODELS

    def __init__(self, weight: float = 1.0) -> None:
        self.weight = weight

    def __init_subclass__(cls) -> None:
        if not hasattr(cls, "name"):
            cls.name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()

    @abstractmethod
    def __call__(self, responses: Sequence[Response]) -> list[float]:
        """Return one unweighted number a response, in order."""

    def step_rewards(self, responses: Sequence[Response]) -> list[StepRewards] | None:
        """Return rewards of single steps, weighted, or None where it rewards whole responses alone.

        In training they are added at the steps' last tokens (``Rollout.reward_BT``), which
        objectives with an advantage of each token read. It is called after the function itself.
        """
        return None

    def applies(self, response: Response) -> bool:
        """Return whether it applies to this response; as an eval metric it skips all others.

        In training every response gets a reward, which is 0 where a function does not apply.
        """
        return True
