"""The format reward."""

from __future__ import annotations

import re
from collections.abc import Sequence

from r1lit.batches import Response
from r1lit.rewards.base import RewardFunction

_TAGS = ("<think>", "</think>", "<answer>", "</answer>")
_WHOLE = re.compile(r"\s*<think>.*</think>\s*<answer>(.*)</answer>\s*", re.DOTALL)


class Format(RewardFunction):
    """1 if the whole response is ``<think>…</think> <answer>…</answer>``, else 0.

    DeepSeek-R1-Zero asks for thinking between think tags and the answer between answer tags. Made
    exact here: each of the four tags stands once, in this order; before, between and behind the two
    parts there is only whitespace; the answer has something visible in it. The paper asks for no
    least amount of thinking, so empty thinking has the format. A response cut at the token limit
    lacks its last tag.
    """

    name = "format"

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        """Return 1.0 or 0.0 a response."""
        return [float(has_format(response.text)) for response in responses]


def has_format(text: str) -> bool:
    """Decide whether a response has the format.

    >>> has_format("<think> 3 + 4 </think> <answer> 7 </answer>")
    True
    >>> has_format("<think> 3 + 4 </think> The answer: <answer> 7 </answer>")
    False
    """
    if any(text.count(tag) != 1 for tag in _TAGS):
        return False
    match = _WHOLE.fullmatch(text)
    return match is not None and any(c.isprintable() and c != " " for c in match.group(1))
