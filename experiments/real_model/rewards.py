"""Rewards that know nothing of the right answer: a form alone, an end, and a coin."""

from __future__ import annotations

from collections.abc import Sequence

from r1lit.problems import Response
from r1lit.rewards import RewardFunction
from r1lit.seeding import generator


class EndsInNumber(RewardFunction):
    """1 for a response that ended by itself and in which an answer was read, else 0."""

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        """Return one number a response, in order."""
        read = ("right", "wrong")
        return [float(r.finished and r.verdict.status in read) for r in responses]


class EndsByItself(RewardFunction):
    """1 for a response that ended before the token limit, else 0."""

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        """Return one number a response, in order."""
        return [float(r.finished) for r in responses]


class CoinPerResponse(RewardFunction):
    """1 or 0 with equal chance, independent for each response, equal texts of a rollout included.

    `experiments.what_rl_adds.rewards.Coin` pays a text the same each time it is written. Responses
    of a few words recur, so a policy could learn which ones are paid. The coins here are named by
    the whole rollout: another rollout has others, and a resumed run the same.
    """

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        """Toss a coin for each response."""
        tosses = generator(0, "coins", *(r.text for r in responses)).random(len(responses))
        return [float(toss < 0.5) for toss in tosses]
