"""The IFEval worker: a process that runs lm-eval's reference checkers until its pipe closes.

It is run as a file and imports nothing of the package (see ``worker``). Of lm-eval it loads only
the folder of the checkers: the package itself would bring in a model's whole surroundings. Each
``{"text": …, "instructions": [[id, kwargs], …], "loose": bool}`` is answered with
``{"followed": [bool, …], "splitter": …}``.

Deviations from the reference:

- ``langdetect`` has a seed, so that a verdict is always the same;
- text in which no language can be found does not follow an instruction about language (the
  reference counts it as followed);
- a ``letter`` that is no letter (``#``) is counted (the reference counts a random letter instead);
- where nltk's trained data ``punkt_tab`` is not on this machine, nothing is downloaded: sentences
  are split by the same algorithm untrained, with a list of common abbreviations. ``splitter`` names
  which it was.

Six checkers take time that grows with the square of a hostile text, or seconds for a long one;
``LINEAR`` decides the same in one pass.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import re
import runpy
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

TRAINED, UNTRAINED = "punkt_tab", "punkt without trained data"
ABOUT_LANGUAGE = {
    "language:response_language",
    "change_case:english_capital",
    "change_case:english_lowercase",
}
ABBREVIATIONS = {
    "dr", "mr", "mrs", "ms", "prof", "rev", "hon", "sr", "jr", "st", "mt", "ft", "gen", "col",
    "capt", "lt", "sgt", "gov", "sen", "rep", "pres", "vs", "etc", "e.g", "i.e", "cf", "al", "inc",
    "ltd", "co", "corp", "bros", "fig", "figs", "vol", "approx", "dept", "est", "ave", "blvd",
    "u.s", "u.k", "u.n", "a.m", "p.m", "b.c", "a.d", "d.c", "ph.d", "m.d", "b.a", "m.a", "b.s",
    "jan", "feb", "aug", "sept", "oct", "nov", "dec", "p.s", "p.p.s",
}  # fmt: skip
_loaded: dict[str, Any] = {}


def start() -> None:
    """Load the checkers and choose the sentence splitter."""
    logging.disable(logging.CRITICAL)
    import langdetect
    import nltk

    langdetect.DetectorFactory.seed = 0
    langdetect.detect("its profiles are read at the first call")
    splitter = _trained_splitter()
    _loaded["splitter"] = TRAINED if splitter else UNTRAINED
    nltk.download = lambda *args, **kwargs: False
    root = importlib.util.find_spec("lm_eval")
    assert root is not None and root.submodule_search_locations
    folder = Path(next(iter(root.submodule_search_locations)))
    for name, path in (("lm_eval", ""), ("lm_eval.tasks", "tasks")):
        package = ModuleType(name)
        package.__path__ = [str(folder / path)]
        sys.modules[name] = package
    util: Any = importlib.import_module("lm_eval.tasks.ifeval.instructions_util")
    if splitter is None:
        splitter = _untrained_splitter()
        words = nltk.tokenize.NLTKWordTokenizer()
        nltk.word_tokenize = lambda text: [
            word for sentence in splitter.tokenize(text) for word in words.tokenize(sentence)
        ]
    util._get_sentence_tokenizer = lambda: splitter
    _loaded["sentences"] = splitter.span_tokenize
    _loaded["words"] = nltk.tokenize.NLTKWordTokenizer().tokenize
    registry = importlib.import_module("lm_eval.tasks.ifeval.instructions_registry")
    _loaded["checkers"] = registry.INSTRUCTION_DICT


def _trained_splitter() -> Any:
    import nltk

    try:
        nltk.data.find("tokenizers/punkt_tab/english/")
    except LookupError:
        return None
    return nltk.tokenize.PunktTokenizer("english")


def _untrained_splitter() -> Any:
    from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer

    parameters = PunktParameters()
    parameters.abbrev_types = set(ABBREVIATIONS)
    return PunktSentenceTokenizer(parameters)


def decide(request: dict[str, Any]) -> dict[str, Any]:
    """Return which instructions a text follows, in order."""
    texts = variants(request["text"]) if request["loose"] else [request["text"]]
    texts = list(dict.fromkeys(texts))
    followed = []
    for identifier, kwargs in request["instructions"]:
        checker = _loaded["checkers"][identifier](identifier)
        checker.build_description(**kwargs)
        if identifier == "keywords:letter_frequency":
            checker._letter = kwargs["letter"].lower()
        followed.append(any(_follows(checker, identifier, text) for text in texts))
    return {"followed": followed, "splitter": _loaded["splitter"]}


def variants(text: str) -> list[str]:
    """Return the eight readings of loose scoring: with and without first line, last line and ``*``.

    >>> variants("a*")[:2]
    ['a*', 'a']
    """
    lines = text.split("\n")
    cut = [text, *("\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1]))]
    return [reading for part in cut for reading in (part, part.replace("*", ""))]


def _follows(checker: Any, identifier: str, text: str) -> bool:
    if not text.strip() or (identifier in ABOUT_LANGUAGE and not _has_language(text)):
        return False
    try:
        return bool(LINEAR.get(identifier, type(checker).check_following)(checker, text))
    except RecursionError:  # JSON of a hundred thousand brackets
        return False


def _number_sentences(checker: Any, text: str) -> bool:
    return _compare(checker, _loaded["sentences"](text), checker._num_sentences_threshold)


def _capital_words(checker: Any, text: str) -> bool:
    """Count words in capitals, of those sentences that have a capital letter."""

    def found() -> Iterator[str]:
        for start, end in _loaded["sentences"](text):
            sentence = text[start:end]
            if any(map(str.isupper, sentence)):
                yield from (word for word in _loaded["words"](sentence) if word.isupper())

    return _compare(checker, found(), checker._frequency)


def _compare(checker: Any, items: Iterator[Any], threshold: int) -> bool:
    """Decide whether there are at least, or fewer than, ``threshold``; count no further."""
    enough = len(list(islice(items, max(0, threshold)))) >= threshold
    return enough if checker._comparison_relation == "at least" else not enough


def _placeholders(checker: Any, text: str) -> bool:
    r"""Count ``\[.*?\]``."""
    count = 0
    for line in text.split("\n"):
        end = 0
        while (start := line.find("[", end)) >= 0 and (end := line.find("]", start) + 1):
            count += 1
    return bool(count >= checker._num_placeholders)


def _bullets(checker: Any, text: str) -> bool:
    r"""Count ``^\s*\*[^\*].*$`` and ``^\s*-.*$``, from the line that holds the mark on."""
    stars = re.findall(r"^[^\S\n]*\*[^\*].*$", text, flags=re.MULTILINE)
    dashes = re.findall(r"^[^\S\n]*-.*$", text, flags=re.MULTILINE)
    return bool(len(stars) + len(dashes) == checker._num_bullets)


def _postscript(checker: Any, text: str) -> bool:
    """Find the marker; the reference also looks at the space before it, which may be none."""
    marker = checker._postscript_marker
    patterns = {"P.P.S": r"p\.\s?p\.\s?s", "P.S.": r"p\.\s?s\."}
    return bool(re.search(patterns.get(marker, marker.lower()), text.lower()))


def _title(checker: Any, text: str) -> bool:
    """Find ``<<…>>`` with something within: from the first ``<<`` of a line to its last ``>>``."""
    lines = ((line, line.find("<<"), line.rfind(">>")) for line in text.split("\n"))
    titles = [line[start : end + 2] for line, start, end in lines if 0 <= start < end - 2]
    return any(title.lstrip("<").rstrip(">").strip() for title in titles)


LINEAR: dict[str, Callable[[Any, str], bool]] = {
    "length_constraints:number_sentences": _number_sentences,
    "change_case:capital_word_frequency": _capital_words,
    "detectable_content:number_placeholders": _placeholders,
    "detectable_format:number_bullet_lists": _bullets,
    "detectable_content:postscript": _postscript,
    "detectable_format:title": _title,
}
"""Checkers of the reference, decided alike in linear time."""


def _has_language(text: str) -> bool:
    import langdetect

    try:
        langdetect.detect(text)
    except langdetect.LangDetectException:
        return False
    return True


if __name__ == "__main__":
    runpy.run_path(str(Path(__file__).with_name("worker.py")))["serve"](start, decide)
