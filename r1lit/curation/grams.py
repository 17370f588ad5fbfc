"""Words and their n-grams, for finding repeated text.

A word is a run of letters and digits, or a single Han or kana character, in lower case; marks and
white space do not count. N-grams are compared by 64-bit numbers, made in one pass over the words.
"""

from __future__ import annotations

import re
from hashlib import blake2b

import numpy as np

_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_\u3040-\u30ff\u3400-\u9fff]+")
_FACTOR = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def words(text: str) -> list[str]:
    """Return the words of ``text``.

    >>> words("Make 24: 3 × x_1, 认为!")
    ['make', '24', '3', 'x', '1', '认', '为']
    """
    return _WORD.findall(text.lower())


def gram_numbers(text_words: list[str], n: int) -> np.ndarray:
    """Return one number for each n-gram; equal n-grams have equal numbers within this process."""
    num_grams = len(text_words) - n + 1
    if num_grams < 1:
        return np.empty(0, dtype=np.uint64)
    numbers = np.fromiter(map(hash, text_words), dtype=np.int64, count=len(text_words))
    word_numbers = numbers.view(np.uint64)
    grams = np.zeros(num_grams, dtype=np.uint64)
    factor = 1
    for place in range(n):
        grams += word_numbers[place : place + num_grams] * np.uint64(factor)
        factor = factor * _FACTOR & _MASK
    return grams


def digest(*texts: str, size: int = 8) -> int:
    """Return a number of ``size`` bytes for texts, the same in every process."""
    state = blake2b(digest_size=size)
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        state.update(len(data).to_bytes(8, "big") + data)
    return int.from_bytes(state.digest(), "big")
