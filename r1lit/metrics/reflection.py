"""The words by which R1's paper measures reflection."""

from __future__ import annotations

import re

REFLECTION_WORDS = (
    "wait",
    "mistake",
    "however",
    "but",
    "retry",
    "error",
    "verify",
    "wrong",
    "evaluate",
    "check",
)
"""The ten words counted in R1 (Nature, supplement: reflective words over training)."""

_WORD = re.compile(r"\b(" + "|".join(REFLECTION_WORDS) + r")\b", re.IGNORECASE)


def count_reflection_words(text: str) -> dict[str, int]:
    """Return how often each of the ten words stands in ``text``.

    Whole words in any case; inflections are other words (``checking``, ``errors`` and ``await`` do
    not count). The paper does not say; counting the words it prints is the narrow reading.

    >>> {w: c for w, c in count_reflection_words("Wait, but checking... wait: CHECK!").items() if c}
    {'wait': 2, 'but': 1, 'check': 1}
    """
    counts = dict.fromkeys(REFLECTION_WORDS, 0)
    for word in _WORD.findall(text):
        counts[word.lower()] += 1
    return counts
