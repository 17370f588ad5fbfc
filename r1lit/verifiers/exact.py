"""Short answers: equality with an accepted text, ignoring case, articles and punctuation."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from r1lit.problems import Problem, Verdict
from r1lit.text.extract import extract_final, thinking_and_answer
from r1lit.text.json_answer import json_answer
from r1lit.text.notation import INVISIBLE, without_lead
from r1lit.verifiers.base import Verifier, conclude
from r1lit.verifiers.last_expression import stated_answer

MAX_CHARACTERS = 1000
_TEX = re.compile(r"\\(?:text(?:bf|it|rm|normal)?|mbox|math(?:rm|bf))\s*\{([^{}\\]*)\}")
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_THOUSANDS = re.compile(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))")
_JOINING = re.compile(r"[.](?![0-9])|['’‘`´]")
_PUNCTUATION = re.compile(
    r"[,;:!?\"“”„«»()\[\]{}_…。，、；：！？]|-(?![0-9])|(?<=[^\W\d_])-(?=[0-9])"
)
_QUESTION = re.compile(r"[?？⁇⁈⁉︖﹖¿؟\u037e]")
_DENIAL = re.compile(r"^[\s*_`\"'“(]*[!！]")
_MARKS = re.compile(r"[*`$]+")
_DASHES = dict.fromkeys(map(ord, "−–—‐‑"), "-")


class ExactVerifier(Verifier):
    r"""Decides about short answers: ``problem.answer`` and, if any, ``meta["aliases"]``.

    The answer taken is the last ``<answer>`` or ``\boxed{}`` outside thinking, else what follows
    ``the answer is …``, else an answer part of one line. It must be the whole of an accepted text:
    more words, a second candidate or a doubt make another answer. Texts are compared after
    ``normalised``. ``canonical`` is the normalised text; every alias votes with the gold answer.

    >>> problem = Problem(uid="", question="", answer="The Beatles", source="", verifier="exact")
    >>> ExactVerifier().verify("<answer> beatles. </answer>", problem).status
    'right'
    >>> ExactVerifier().verify("<answer> The Beatles or The Who </answer>", problem).status
    'wrong'
    """

    needs = (("answer",),)
    max_words = 40.0

    def verify(self, response: str, problem: Problem) -> Verdict:
        """Decide about one response.

        Raises:
            ValueError: if ``meta["aliases"]`` is not a list of texts.
        """
        gold = normalised(problem.answer)
        accepted = {gold, *map(normalised, _aliases(problem))} - {""}
        if not accepted:
            return conclude("error", None, "the problem has no gold answer")
        answer = find_text(response)
        if answer is None:
            return conclude("unparsed", None, "no answer found")
        if answer == problem.answer.strip():
            return conclude("right", gold[:200] or min(accepted), "")
        if len(answer) > MAX_CHARACTERS:
            return conclude("unparsed", None, f"is longer than {MAX_CHARACTERS} characters")
        answer = _TEX.sub(r"\1", answer)
        if accepted & {normalised(answer), normalised(without_lead(answer))}:
            if doubt := _doubt(answer, (problem.answer, *_aliases(problem))):
                return conclude("wrong", answer[:200], f"{answer[:60]!r} {doubt}")
            return conclude("right", gold or min(accepted), "")
        text = normalised(without_lead(answer))
        if not text:
            return conclude("unparsed", None, "an empty answer")
        reason = f"{answer[:60]!r} is not {problem.answer[:60]!r}"
        return conclude("wrong", text[:200], reason)


def find_text(response: str) -> str | None:
    r"""Return the answer of a response as text, or ``None``.

    >>> find_text("<think> Rome? </think> Paris"), find_text("First\nsecond")
    ('Paris', None)
    """
    answer = extract_final(response)
    if answer is not None:
        return json_answer(answer) or answer
    _, text = thinking_and_answer(response)
    if "<answer>" in text or "\\boxed" in text:
        return None
    text = text.translate(INVISIBLE).strip()
    answer = json_answer(text) or stated_answer(text)
    if answer is None and text and "\n" not in text:
        answer = text
    return answer


def _doubt(answer: str, accepted: Sequence[str]) -> str:
    """Say how a sign doubts or denies an answer, unless an accepted text has that sign, too."""
    for pattern, doubt in ((_QUESTION, "asks"), (_DENIAL, "denies")):
        if pattern.search(answer) and not any(map(pattern.search, accepted)):
            return doubt
    return ""


def normalised(text: str) -> str:
    """Return a text without what does not change an answer.

    NFKC, case folded, no zero-width characters, markdown marks, articles, punctuation, commas
    between thousands or double spaces. Signs that do carry meaning stay: a minus, a decimal point,
    ``+``, ``#``, ``%``, ``/``. A text that would vanish keeps its articles and marks.

    >>> normalised("The  Beatles!"), normalised("1,000.5"), normalised("-5"), normalised("C++")
    ('beatles', '1000.5', '-5', 'c++')
    >>> normalised("U.S.A."), normalised("COVID-19"), normalised("1939–1945"), normalised("A")
    ('usa', 'covid 19', '1939-1945', 'a')
    """
    text = unicodedata.normalize("NFKC", text.translate(INVISIBLE)).casefold()
    text = unicodedata.normalize("NFKC", text).translate(_DASHES)
    whole = " ".join(text.split())
    text = _THOUSANDS.sub("", _MARKS.sub("", text))
    text = _ARTICLES.sub(" ", _PUNCTUATION.sub(" ", _JOINING.sub("", text)))
    return " ".join(text.split()) or whole


def _aliases(problem: Problem) -> Sequence[str]:
    aliases = problem.meta.get("aliases") or []
    if isinstance(aliases, str) or not all(isinstance(alias, str) for alias in aliases):
        raise ValueError(
            f"meta: aliases of problem {problem.uid!r} is {aliases!r}, not a list of texts"
        )
    return list(aliases)
