"""Words of another language that is written in the same script.

The script of a word cannot tell French from English; how frequent its letters, pairs and triples of
letters are can. langdetect has these frequencies in 55 languages. It samples some of a text's
n-grams and takes a millisecond a sentence; here the log-likelihoods of all n-grams are summed,
which is the same in every process, and those of a word are kept, so that it takes microseconds.

    W windows   L languages of one script
"""

from __future__ import annotations

import unicodedata
from functools import cache, lru_cache

import numpy as np
import regex

from r1lit.metrics.language import MOST_SPOKEN, SCRIPTS_OF, detectors

MIN_WORDS = 6
MIN_WORDS_OF_A_TEXT = 4
MAX_LETTERS = 40
MARGIN = 35.0
"""Nats by which another language must be likelier; n-grams overlap, so they count thrice."""
_SMOOTHING = 5e-5  # langdetect's
_SENTENCE = regex.compile(r"[^.!?…\n؟۔।]+")


def share_of_others(text: str, language: str) -> float:
    """Return the share of the words of ``language``'s script that are in another one; from 0 to 1.

    ``text`` should be ``prose``. It is cut at ends of sentences into windows of at least 6 unlike
    words; a whole text of 4 or 5 is one, too. A window is in the language of the whole text unless
    another is likelier by 35 nats, and the text in ``language`` unless one is by as much. Names,
    symbols and quotations of a few words therefore stay what the text around them is, and so do
    short sentences of a sister language, Spanish in Portuguese. Single letters and words in
    capitals are not looked at. 0 where the script has one language, or langdetect does not know
    ``language``.

    >>> french = "Donc la somme de ces deux nombres est bien divisible par trois."
    >>> share_of_others(french, "en")
    1.0
    >>> round(share_of_others("So the sum of both numbers must be seven. " + french, "en"), 3)
    0.571
    """
    (script, *more) = SCRIPTS_OF[language]
    rivals = _rivals(script)
    if more or script not in MOST_SPOKEN or language not in rivals:
        return 0.0
    windows = _windows(text, script)
    if not windows:
        return 0.0
    evidence_WL = np.stack([sum(map(_log_likelihood, set(window))) for window in windows])
    evidence_WL = evidence_WL[:, list(rivals.values())]
    own = list(rivals).index(language)
    whole_L = evidence_WL.sum(0)
    usual = own if whole_L[own] > whole_L.max() - MARGIN else int(whole_L.argmax())
    is_usual_W = evidence_WL[:, usual] > evidence_WL.max(1) - MARGIN
    found_W = np.where(is_usual_W, usual, evidence_WL.argmax(1))
    num_words_W = np.array([len(window) for window in windows])
    return float(num_words_W[found_W != own].sum() / num_words_W.sum())


def _windows(text: str, script: str) -> list[list[str]]:
    """Return the words of a script in windows; none if the whole text has too few to tell."""
    windows: list[list[str]] = [[]]
    for sentence in _SENTENCE.findall(text):
        if len(set(windows[-1])) >= MIN_WORDS:
            windows.append([])
        windows[-1] += [
            word
            for word in _word(script).findall(sentence)
            if 1 < len(word) <= MAX_LETTERS and not word.isupper()
        ]
    if len(set(windows[-1])) < MIN_WORDS:
        last = windows.pop()
        if windows:
            windows[-1] += last
        elif len(set(last)) >= MIN_WORDS_OF_A_TEXT:
            windows.append(last)
    return windows


@cache
def _word(script: str) -> regex.Pattern[str]:
    letter = rf"\p{{Script={script}}}"
    return regex.compile(rf"[{letter}--\p{{M}}][{letter}\p{{M}}]*+", regex.V1)


@cache
def _rivals(script: str) -> dict[str, int]:
    """Return the languages of a script that langdetect supports, and their places in its list."""
    known = enumerate(detectors().langlist)
    return {code: place for place, code in known if SCRIPTS_OF.get(code) == (script,)}


@lru_cache(maxsize=1 << 15)
def _log_likelihood(word: str) -> np.ndarray:
    """Return the log-likelihood of a word's n-grams in every language that langdetect supports."""
    from langdetect.utils.ngram import NGram  # its tables take time that most runs need not

    table = detectors().word_lang_prob_map
    letters = "".join(map(NGram.normalize, unicodedata.normalize("NFC", word)))
    padded = f" {letters} "
    grams = [padded[i : i + n] for n in (1, 2, 3) for i in range(len(padded) - n + 1)]
    known = [table[gram] for gram in grams if gram != " " and gram in table]
    if not known:
        return np.zeros(len(detectors().langlist))
    likelihood: np.ndarray = np.log(np.array(known) + _SMOOTHING).sum(0)
    return likelihood
