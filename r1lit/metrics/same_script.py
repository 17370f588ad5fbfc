"""Sentences of another language of Latin script in English text.

The script of a word cannot tell them, and langdetect on every sentence would cost more than all
the rest. So a sentence is only looked at when it is long enough to tell and has few of the words
that hold English together.
"""

from __future__ import annotations

import re

from r1lit.metrics.language import most_likely

MIN_WORDS = 6
MAX_SHARE = 0.15
_SENTENCE = re.compile(r"[^.!?\n]+")
_WORD = re.compile(r"[^\W\d_]{2,}+(?:['’][^\W\d_]++)*+")
_HOLDS_ENGLISH_TOGETHER = frozenset(
    re.findall(
        r"\w+",
        "the of and to is in so that it be for this if we are but then not as let with on or at by"
        " have has was an you can there would which my do from they one no wait okay maybe he she"
        " all because yes just what hmm however when where how will must could should here their",
    )
)


def words_not_english(text: str) -> int:
    """Count the words of sentences in another language of Latin script; ``text`` is ``prose``.

    A sentence counts when it has at least 6 different words of two letters or more, less than 0.15
    of its words are among the most common ones of English, and langdetect is sure (0.95) that it
    is not English.

    >>> words_not_english("So it is seven. Donc la somme des deux nombres est bien divisible.")
    9
    """
    num_words = 0
    for sentence in _SENTENCE.findall(text):
        words = _WORD.findall(sentence.lower())
        if len(set(words)) < MIN_WORDS:
            continue
        num_common = sum(word in _HOLDS_ENGLISH_TOGETHER for word in words)
        if num_common >= MAX_SHARE * len(words):
            continue
        if most_likely(sentence, "Latin") not in (None, "en"):
            num_words += len(words)
    return num_words
