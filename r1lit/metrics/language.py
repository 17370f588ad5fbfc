"""The language of a question, the same in every process."""

from __future__ import annotations

import threading
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from r1lit.metrics.words import count_words, prose

if TYPE_CHECKING:
    from langdetect.detector_factory import DetectorFactory

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

    langdetect draws n-grams at random. Here it has a factory of its own with a fixed seed and
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
