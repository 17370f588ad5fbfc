"""The two rewards of R1-Zero: accuracy and format."""

from __future__ import annotations

import re
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


_THINK = ("<think>", "</think>")
_ANSWER = ("<answer>", "</answer>")
_WHOLE = re.compile(r"\s*<think>.*</think>\s*<answer>(.*)</answer>\s*", re.DOTALL)
_SUMMARISED = re.compile(r"\s*<think>.*</think>(.*)", re.DOTALL)


class Format(RewardFunction):
    """1 if the whole response is ``<think>…</think> <answer>…</answer>``, else 0.

    DeepSeek-R1-Zero asks for thinking between think tags and the answer between answer tags. Made
    exact here: each of the four tags stands once, in this order; before, between and behind the two
    parts there is only whitespace; the answer has something visible in it. The paper sets no
    minimum length of thinking, so empty thinking has the format. A response cut at the token limit
    lacks its last tag.

    Args:
        think_prefilled: the prompt template ended in ``<think>``, so the response must not open it
            again.
        answer_tags: with False, what follows ``</think>`` is a summary without tags, as released
            R1 models write it, and must have something visible in it. Answer tags are then text.
        weight: multiplies the reward.
    """

    name = "format"

    def __init__(
        self, weight: float = 1.0, think_prefilled: bool = False, answer_tags: bool = True
    ) -> None:
        super().__init__(weight)
        self.think_prefilled = think_prefilled
        self.answer_tags = answer_tags

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        """Return 1.0 or 0.0 a response."""
        return [
            float(
                has_format(
                    response.text,
                    think_prefilled=self.think_prefilled,
                    answer_tags=self.answer_tags,
                )
            )
            for response in responses
        ]


def has_format(text: str, *, think_prefilled: bool = False, answer_tags: bool = True) -> bool:
    """Decide whether a response has the format of ``Format``.

    >>> has_format("<think> 3 + 4 </think> <answer> 7 </answer>")
    True
    >>> has_format("<think> 3 + 4 </think> The answer: <answer> 7 </answer>")
    False
    >>> has_format("3 + 4 </think> The answer is 7.", think_prefilled=True, answer_tags=False)
    True
    """
    if think_prefilled:
        text = "<think>" + text
    if any(text.count(tag) != 1 for tag in (_THINK + _ANSWER if answer_tags else _THINK)):
        return False
    match = (_WHOLE if answer_tags else _SUMMARISED).fullmatch(text)
    return match is not None and is_visible(match.group(1))


def is_visible(text: str) -> bool:
    """Return whether a text has a character that can be seen."""
    return any(c.isprintable() and not c.isspace() for c in text)
