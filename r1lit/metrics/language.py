"""Languages: detecting a question's, and the share of a text's words in one language.

French and English have one script. The frequencies of letters, pairs and triples of letters
distinguish them, and langdetect has these frequencies in 55 languages. langdetect samples some of a
text's n-grams and takes a millisecond a sentence; this is enough for a question. For words, this
file sums the log-likelihoods of all n-grams, so every process gets the same result. It caches the
sum of each word, so a word takes microseconds.

    W windows   L languages of one script
"""

from __future__ import annotations

import re
import threading
import unicodedata
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import regex

from r1lit.errors import check_one_of
from r1lit.metrics.words import count_words, prose

if TYPE_CHECKING:
    from langdetect.detector_factory import DetectorFactory


# the language of a question

SCRIPTS_OF = {
    **dict.fromkeys(("ru", "uk", "bg", "mk", "sr", "be"), ("Cyrillic",)),
    **dict.fromkeys(("ar", "fa", "ur"), ("Arabic",)),
    **dict.fromkeys(("hi", "mr", "ne"), ("Devanagari",)),
    "zh": ("Han",),
    "ja": ("Han", "Hiragana", "Katakana"),
    "ko": ("Hangul",),
    "el": ("Greek",),
    "he": ("Hebrew",),
    "bn": ("Bengali",),
    "pa": ("Gurmukhi",),
    "gu": ("Gujarati",),
    "ta": ("Tamil",),
    "te": ("Telugu",),
    "kn": ("Kannada",),
    "ml": ("Malayalam",),
    "si": ("Sinhala",),
    "hy": ("Armenian",),
    "ka": ("Georgian",),
    "am": ("Ethiopic",),
    "th": ("Thai",),
    "lo": ("Lao",),
    "km": ("Khmer",),
    "my": ("Myanmar",),
    **dict.fromkeys(
        "af ca cs cy da de en es et fi fr ga hr hu id is it lt lv ms nl no pl pt ro sk sl so sq sv"  # noqa: SIM905
        " sw tl tr vi".split(),
        ("Latin",),
    ),
}
"""The scripts each language is written in, by its ISO 639-1 code."""

MOST_SPOKEN = {"Latin": "en", "Cyrillic": "ru", "Arabic": "ar", "Devanagari": "hi"}
"""The language of a text that is too short to tell, in scripts of several languages."""

MIN_WORDS = 4
MIN_PROBABILITY = 0.95
_SEED = 0
_loading = threading.Lock()


@lru_cache(maxsize=65536)
def language_of(question: str) -> str:
    """Return the language of a question as an ISO 639-1 code.

    The script most words are in decides where one language is written in it; Han with any kana is
    Japanese. Among the languages of one script langdetect decides, about what ``prose`` leaves. Of
    fewer than 4 words, or when it is not at least 0.95 sure, the question is taken for English (or
    Russian, Arabic, Hindi), and so is one without a word.

    langdetect samples n-grams. Here it has a factory of its own with a fixed seed and
    profiles in a fixed order: the answer depends on the question alone, and the global
    ``DetectorFactory.seed`` is left as it is.

    >>> language_of("What is 3 + 4?"), language_of("求 $3 + 4$ 的值。")
    ('en', 'zh')
    """
    text = prose(question)
    counts = count_words(text, symbols_are_words=True)
    kana = counts.pop("Hiragana", 0) + counts.pop("Katakana", 0)
    if kana:
        counts["Japanese"] = kana + counts.pop("Han", 0)
    if not counts:
        return "en"
    script, num_words = counts.most_common(1)[0]
    if script == "Japanese":
        return "ja"
    if script not in MOST_SPOKEN:
        return next((code for code, of in SCRIPTS_OF.items() if of == (script,)), "en")
    if num_words < MIN_WORDS:
        return MOST_SPOKEN[script]
    return most_likely(text, script) or MOST_SPOKEN[script]


def most_likely(text: str, script: str) -> str | None:
    """Return the language of ``script`` that langdetect is sure of, or ``None``."""
    from langdetect import LangDetectException  # its tables take time that most runs need not

    detector = detectors().create()
    detector.append(text)
    try:
        guesses = detector.get_probabilities()
    except LangDetectException:  # no n-gram of the text is in its tables
        return None
    sure = [guess for guess in guesses if guess.prob >= MIN_PROBABILITY]
    if not sure or SCRIPTS_OF.get(sure[0].lang) != (script,):
        return None
    return str(sure[0].lang)


@cache
def _load() -> DetectorFactory:
    from langdetect import detector_factory

    folder = Path(detector_factory.__file__).with_name("profiles")
    factory = detector_factory.DetectorFactory()
    names = sorted(path.name for path in folder.iterdir() if path.is_file())
    # by name: its own loader goes by the order of the folder on this disk
    factory.load_json_profile([(folder / name).read_text(encoding="utf-8") for name in names])
    factory.set_seed(_SEED)
    return factory


def detectors() -> DetectorFactory:
    """Return langdetect's profiles, read once, in an order and with a seed that are fixed."""
    with _loading:
        return _load()


# words of another language in the same script

WORDS_OF_A_WINDOW = 6
WORDS_OF_A_TEXT = 4
MAX_LETTERS = 40
MARGIN = 35.0
"""Nats by which another language must be likelier; n-grams overlap, so they count thrice."""
_SMOOTHING = 5e-5  # langdetect's
_WINDOW = regex.compile(r"[^.!?…\n؟۔।]+")


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
    for sentence in _WINDOW.findall(text):
        if len(set(windows[-1])) >= WORDS_OF_A_WINDOW:
            windows.append([])
        windows[-1] += [
            word
            for word in _word(script).findall(sentence)
            if 1 < len(word) <= MAX_LETTERS and not word.isupper()
        ]
    if len(set(windows[-1])) < WORDS_OF_A_WINDOW:
        last = windows.pop()
        if windows:
            windows[-1] += last
        elif len(set(last)) >= WORDS_OF_A_TEXT:
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


# consistency

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
    check_one_of("language", language, SCRIPTS_OF)


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
