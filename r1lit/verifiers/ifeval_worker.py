"""The IFEval worker: a process that runs lm-eval's reference checkers until its pipe closes.

It is run as a file and imports nothing of the package (see ``serving``). Of lm-eval it loads only
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
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import runpy
import sys
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
        return bool(checker.check_following(text))
    except RecursionError:  # JSON of a hundred thousand brackets
        return False


def _has_language(text: str) -> bool:
    import langdetect

    try:
        langdetect.detect(text)
    except langdetect.LangDetectException:
        return False
    return True


if __name__ == "__main__":
    runpy.run_path(str(Path(__file__).with_name("serving.py")))["serve"](start, decide)
