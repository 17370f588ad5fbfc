"""Reward functions of a response's length."""

from __future__ import annotations

import math
from collections.abc import Sequence

from r1lit.batches import Response
from r1lit.errors import check_at_least
from r1lit.rewards.base import RewardFunction


class CosineLength(RewardFunction):
    """Cosine length scaling, "Demystifying Long CoT" (arXiv 2502.03373): takes accuracy's place.

    With n tokens of at most L = ``max_tokens``, and values r_0 at no length and r_L at L, which a
    right response takes from ``right`` and any other from ``wrong``::

        r_L + (r_0 - r_L) (1 + cos(pi n / L)) / 2   if it finished within L;   ``exceeded`` if not

    The default values are ours: short right responses are worth most, and a wrong one loses less
    the longer it tried. A verdict of a time-out or an error counts as wrong, as in ``Accuracy``.
    With L = 100, a right response of 50 tokens gives 0.75.

    Args:
        max_tokens: L, the longest response there can be.
        right: values of a right response at no length and at L.
        wrong: likewise of any other.
        exceeded: value of a response that did not finish.
        weight: multiplies its numbers in the sum of rewards.
    """

    name = "cosine_length"

    def __init__(
        self,
        max_tokens: int,
        right: tuple[float, float] = (1.0, 0.5),
        wrong: tuple[float, float] = (-1.0, -0.5),
        exceeded: float = -1.0,
        weight: float = 1.0,
    ) -> None:
        super().__init__(weight)
        check_at_least("max_tokens", max_tokens, 1)
        for key, values in (("right", right), ("wrong", wrong), ("exceeded", (exceeded,))):
            if not all(map(math.isfinite, values)):
                raise ValueError(f"{key}: {values} are not finite numbers")
        self.max_tokens = max_tokens
        self.right = right
        self.wrong = wrong
        self.exceeded = exceeded

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        """Return one number a response."""
        return [self._value(response) for response in responses]

    def _value(self, response: Response) -> float:
        if not response.finished or response.num_sampled > self.max_tokens:
            return self.exceeded
        at_0, at_max = self.right if response.verdict.status == "right" else self.wrong
        share = response.num_sampled / self.max_tokens
        return at_max + (at_0 - at_max) * (1 + math.cos(math.pi * share)) / 2


class GroupLength(RewardFunction):
    """The length reward of Kimi k1.5 (arXiv 2501.12599, section 2.3.3), from -0.5 to 0.5.

    Among the responses to one problem, from the shortest (min tokens) to the longest (max)::

        lambda = 0.5 - (n - min) / (max - min);   lambda if right, min(0, lambda) if not

    and 0 for all where max = min. Of right responses with 10, 15 and 20 tokens the rewards are 0.5,
    0 and -0.5. The responses to a problem are a group's, ``Response.group_id``.

    Args:
        weight: multiplies its numbers in the sum of rewards.
    """

    name = "group_length"

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        """Return one number a response."""
        lengths: dict[int | str, list[int]] = {}
        for response in responses:
            lengths.setdefault(response.group_id, []).append(response.num_sampled)
        return [self._value(response, lengths[response.group_id]) for response in responses]

    def _value(self, response: Response, lengths: list[int]) -> float:
        shortest, longest = min(lengths), max(lengths)
        if shortest == longest:
            return 0.0
        value = 0.5 - (response.num_sampled - shortest) / (longest - shortest)
        return value if response.verdict.status == "right" else min(0.0, value)


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
        return [self._punishment(r.num_sampled) if r.finished else -1.0 for r in responses]

    def _punishment(self, num_tokens: int) -> float:
        excess = num_tokens - (self.max_tokens - self.buffer_tokens)
        return -min(1.0, excess / self.buffer_tokens) if excess > 0 else 0.0
