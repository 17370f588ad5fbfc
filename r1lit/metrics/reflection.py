"""R1's reflection words."""

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

CHINESE = {
    "等等": "wait",
    "等一下": "wait",
    "失误": "mistake",
    "有错": "mistake",
    "然而": "however",
    "不过": "however",
    "但是": "but",
    "重试": "retry",
    "错误": "error",
    "验证": "verify",
    "错了": "wrong",
    "不对": "wrong",
    "评估": "evaluate",
    "检查": "check",
}
"""Chinese words by the English one that they count as; the paper lists English words only."""

_WORD = re.compile(r"\b(" + "|".join(REFLECTION_WORDS) + r")\b|" + "|".join(CHINESE), re.IGNORECASE)


def count_reflection_words(text: str) -> dict[str, int]:
    """Return how often each of the ten words stands in ``text``, in English or in Chinese.

    Whole words in any case; inflections are other words (``checking``, ``errors`` and ``await`` do
    not count). The paper does not say; counting the words it prints is the narrow reading. Chinese
    is counted under the English word: a policy that changes languages halfway thinks no less.

    >>> {w: c for w, c in count_reflection_words("Wait, but checking... 等等: CHECK!").items() if c}
    {'wait': 2, 'but': 1, 'check': 1}
    """
    counts = dict.fromkeys(REFLECTION_WORDS, 0)
    for match in _WORD.finditer(text):
        word = match[0].lower()
        counts[CHINESE.get(word, word)] += 1
    return counts
