"""Language consistency: the share of a text's words that are in one language."""

from __future__ import annotations

import re

from r1lit.metrics.language import SCRIPTS_OF
from r1lit.metrics.same_script import share_of_others
from r1lit.metrics.words import count_words, prose

_SENTENCE = re.compile(r"[。！？!?；\n]+")
_LONGEST_WITHOUT_KANA = 8


def language_consistency(thinking: str, language: str, same_script: bool = True) -> float:
    """Return R1's Eq. 7: words of ``language`` in the thinking / words in the thinking.

    ``language`` is an ISO 639-1 code. What counts as a word, and what is left out (code, formulas,
    URLs, numbers), is defined in ``r1lit.metrics.words``. Thinking without a word gives 0: nothing
    shows its language, and 1 would pay for thinking left empty or hidden in code.

    The script of a word decides. Languages of one script are distinguished by context: with
    kana in the same sentence Han is Japanese, and a sentence of more than 8 Han characters without
    kana is Chinese. Latin, Cyrillic, Arabic and Devanagari words count for what their sentence is
    written in (``share_of_others``, some 45 languages): a French sentence is no English, a French
    word in an English one still is. Without ``same_script`` all their words count as the target.

    Worked example: 3 of 5 words are English, as each Han character is a word.

    >>> language_consistency("people mistakenly认为 more", "en")
    0.6

    Raises:
        ValueError: if ``language`` is not one of ``SCRIPTS_OF``.
    """
    check_language(language)
    scripts = SCRIPTS_OF[language]
    text = prose(thinking)
    counts = count_words(text, symbols_are_words=scripts == ("Latin",))
    num_words = counts.total()
    if num_words == 0:
        return 0.0
    num_target = float(sum(counts[script] for script in scripts))
    if language in ("zh", "ja"):
        num_target -= _han_of_the_other(text, language)
    if same_script and num_target:
        num_target *= 1 - share_of_others(text, language)
    return num_target / num_words


def check_language(language: str) -> None:
    """Check that the scripts of ``language`` are known.

    Raises:
        ValueError: if they are not.
    """
    if language not in SCRIPTS_OF:
        raise ValueError(f"language: {language!r} is none of {sorted(SCRIPTS_OF)}")


def _han_of_the_other(text: str, language: str) -> int:
    """Count the Han characters that are Japanese where the target is Chinese, or the reverse."""
    num_other = 0
    for sentence in _SENTENCE.split(text):
        counts = count_words(sentence, symbols_are_words=True)
        if counts["Hiragana"] or counts["Katakana"]:
            num_other += counts["Han"] if language == "zh" else 0
        elif language == "ja" and counts["Han"] > _LONGEST_WITHOUT_KANA:
            num_other += counts["Han"]
    return num_other
