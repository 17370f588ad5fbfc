"""Steps of a response: where each ends in its text and in its tokens, and what they are worth."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Literal

Aggregate = Literal["last", "min", "product"]
AGGREGATES: dict[str, Callable[[Sequence[float]], float]] = {
    "last": lambda scores: scores[-1],
    "min": min,
    "product": math.prod,
}
"""What a response is worth of its steps' scores (Let's Verify 2305.20050, App. F)."""


def step_ends(text: str, separators: Sequence[str]) -> list[int]:
    r"""Return where each step of a text ends, as offsets.

    A separator ends a step and stays part of it; several in a row end one. What follows the last
    one is a step too. White space alone is none.

    >>> step_ends("3 + 4 = 7.\n\nSo 7.", ["\n\n"])
    [12, 17]

    Raises:
        ValueError: if there is no separator, or an empty one.
    """
    if not separators or not all(separators):
        raise ValueError(f"separators: {list(separators)} are not texts that end a step")
    longest_first = sorted(separators, key=len, reverse=True)
    pattern = f"(?:{'|'.join(map(re.escape, longest_first))})+"
    ends = [match.end() for match in re.finditer(pattern, text)]
    ends += [len(text)] * (ends[-1:] != [len(text)])
    return [end for start, end in zip([0, *ends], ends, strict=False) if text[start:end].strip()]


def cut_steps(text: str, separators: Sequence[str]) -> list[str]:
    r"""Return the steps of a text; joined, they are the text but for white space at its end.

    >>> cut_steps("3 + 4 = 7.\n\nSo 7.", ["\n\n"])
    ['3 + 4 = 7.\n\n', 'So 7.']
    """
    ends = step_ends(text, separators)
    return [text[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def token_places(pieces: Sequence[str], ends: Sequence[int]) -> list[int]:
    """Return which token holds the character before each offset into a text.

    >>> token_places(["3", " + 4", ".", " So"], [6, 9])
    [2, 3]

    Args:
        pieces: the text of each token, see ``r1lit.text.pieces``; at least one.
        ends: offsets from 1 on; the last token's where they exceed the text.
    """
    lengths = list(accumulate(map(len, pieces)))
    return [min(bisect_left(lengths, end), len(pieces) - 1) for end in ends]
