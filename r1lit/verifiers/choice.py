r"""Multiple choice: which of the options does a response commit to?

The text that commits is found by `r1lit.verifiers.committing`. In it stands one of

    a letter            C   (C)   C.   \text{C}   **C**   option C   C is correct
    a letter and text   C. Paris   (C) Paris   C (Paris)
    an option's text    Paris

Text that names a second option, denies one or doubts commits to nothing.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from r1lit.problems import LETTERS, Problem, Verdict
from r1lit.text.notation import plain_signs, without_lead
from r1lit.verifiers.base import Verifier, conclude
from r1lit.verifiers.committing import MAX_CHARACTERS, committing_text, declared_letter
from r1lit.verifiers.exact import normalised

FORMS = ("letter", "index", "text")
_LEAD = re.compile(
    r"^(?:(?:(?:so|thus|hence|therefore|i (?:would )?(?:choose|pick|select)|it(?:['’]s| is))\b"
    r"|选择?|故选|应选)\s*[,:]?\s*)?"
    r"(?:the\s+)?(?:(?:correct|best|right|final)\s+)?(?:(?:option|choice|answer|选项|答案)\b\s*"
    r"(?:(?:is|are|should be|must be|would be|是|为)\s*)?:?\s*)?(?=\S)",
    re.IGNORECASE,
)
_TEX = re.compile(r"^\\(?:text|textbf|mathrm|mathbf|mbox|operatorname)\s*\{(.*)\}$", re.DOTALL)
_ALONE = re.compile(r"^[(\[{<]?\s*([A-Ja-j])\s*[)\]}>]?\s*[.,:;]?$")
_LABELLED = re.compile(
    r"^(?:(?:\(([A-J])\)|\[([A-J])\])\s*(?:[.:,]|-(?=\s))?|([A-J])\s*(?:[.:)\]]"
    r"|-(?=\s)))\s*(\S.*)$",
    re.DOTALL,
)
_BECAUSE = re.compile(r"^[(\[]?([A-J])[)\]]?,?\s+(?:because|since|as|for)\s+(.*)$", re.DOTALL)
_BESIDE = re.compile(r"^\(?([A-J])\)?(?:\s*[,:]\s*|\s+)(\S.*)$", re.DOTALL)
_ARTICLE = re.compile(r"(?<![\w(])A\s+(?!is\b|or\b|and\b|was\b)[a-z]")
_DOUBT = re.compile(
    r"\b(?:not|n't|nor|neither|either|or|maybe|perhaps|possibly|probably|might|unsure"
    r"|could be(?=\W*$|\s+(?:(?-i:[A-J])\b|any|one|some|others?|another|all|right|correct|true|off"
    r"|mistaken))"
    r"|all of|none of|both|wrong|incorrect|false|unlikely)\b|\?|或|不是|都",
    re.IGNORECASE,
)


class ChoiceVerifier(Verifier):
    r"""Decides about multiple choice: ``problem.meta["choices"]`` are the options' texts, in order.

    ``problem.answer`` is the right option's letter, its place counted from 0, or its text.
    ``meta["answer_form"]`` (``letter``, ``index`` or ``text``) settles which where it can be read
    in two ways. ``canonical`` is the letter.

    >>> meta = {"choices": ["Rome", "Oslo", "Paris"]}
    >>> problem = Problem(uid="", question="", answer="C", source="", meta=meta)
    >>> ChoiceVerifier().verify("So the answer is (C).", problem).status
    'right'
    >>> ChoiceVerifier().verify("<answer> B or C </answer>", problem).reason
    "'B or C' commits to no option"
    """

    def gold_text(self, problem: Problem) -> str:
        """Return the letter of the right option."""
        return LETTERS[right_choice(problem)]

    def verify(self, response: str, problem: Problem) -> Verdict:
        """Decide about one response.

        Raises:
            ValueError: if ``meta`` has no list of 2 to 10 choices, or ``problem.answer`` names none
                or several of them.
        """
        start = time.perf_counter()
        choices = _choices(problem)
        right = right_choice(problem)
        text = committing_text(response)
        if text is None:
            return conclude("unparsed", None, "no answer found", start)
        if len(text) > MAX_CHARACTERS:
            return conclude("unparsed", None, f"is longer than {MAX_CHARACTERS} characters", start)
        chosen = read_choice(text, choices)
        if chosen is None:
            return conclude("unparsed", None, f"{text[:60]!r} commits to no option", start)
        if chosen != right:
            reason = f"chose {LETTERS[chosen]}, not {LETTERS[right]}"
            return conclude("wrong", LETTERS[chosen], reason, start)
        return conclude("right", LETTERS[chosen], "", start)


def right_choice(problem: Problem) -> int:
    """Return the place of the right option, from 0.

    Raises:
        ValueError: as ``ChoiceVerifier.verify``.
    """
    choices, answer = _choices(problem), problem.answer.strip()
    form = problem.meta.get("answer_form")
    if form is not None and form not in FORMS:
        raise ValueError(
            f"meta: answer_form of problem {problem.uid!r} is {form!r}, none of {FORMS}"
        )
    letter = answer.strip("().").upper()
    found = {
        "letter": {LETTERS.index(letter)} if letter and letter in LETTERS else set(),
        "index": {int(answer)} if answer.isascii() and answer.isdigit() else set(),
        "text": {i for i, choice in enumerate(choices) if choice.strip() == answer},
    }
    places = found[form] if form else found["letter"] or found["text"] | found["index"]
    places = {place for place in places if place < len(choices)}
    if len(places) != 1:
        raise ValueError(
            f"answer: {problem.answer!r} of problem {problem.uid!r} names"
            f" {len(places)} of its {len(choices)} choices; a letter is sure"
            + ("" if form else ", or answer_form in meta says how to read it")
        )
    return places.pop()


def read_choice(text: str, choices: Sequence[str]) -> int | None:
    r"""Return the place of the option that a text commits to, or ``None``.

    >>> choices = ["4", "5", "Paris", "a dog"]
    >>> [read_choice(t, choices) for t in ("(B)", "5", "C. Paris", "option d", "A or B", "not A")]
    [1, 1, 2, 3, None, None]
    >>> read_choice("A. Paris", choices) is None, read_choice("ABCD", choices) is None
    (True, True)
    """
    letters = LETTERS[: len(choices)]
    raw = " ".join(text.split())
    verbatim = [i for i, choice in enumerate(choices) if " ".join(choice.split()) == raw]
    if len(verbatim) == 1 and not (len(raw) == 1 and raw in LETTERS):
        return verbatim[0]
    text = _stripped(text)
    match = _ALONE.match(text)
    if match:
        letter = match[1].upper()
        return letters.index(letter) if letter in letters else _by_text(text, choices)
    same = [i for i, choice in enumerate(choices) if choice.casefold().strip() == text.casefold()]
    if len(same) == 1:
        return same[0]
    if letter := declared_letter(raw) or declared_letter(text):
        return _place(letter, letters)
    if match := _LABELLED.match(text):  # before options' texts, in which the label A is an article
        place, rest = _place(match[1] or match[2] or match[3], letters), match[4].strip()
        if place is None or _quotes(rest, choices[place]):
            return place  # two options may share this text; the letter tells them apart
        other = _by_text(rest, choices) is not None or _could_be(rest, choices)
        return None if other or _wavers(rest, letters, place) else place
    if match := _BECAUSE.match(text):
        place = _place(match[1], letters)
        return None if place is None or _wavers(match[2], letters, place) else place
    if match := _BESIDE.match(text):
        place, rest = _place(match[1], letters), match[2].strip("() .")
        if place is not None and _key(rest) and _key(rest) == _key(choices[place]):
            return place
    return _by_text(text, choices)


def _place(letter: str, letters: str) -> int | None:
    return letters.index(letter) if letter in letters else None


def _by_text(text: str, choices: Sequence[str]) -> int | None:
    """Return the one option whose text this is."""
    key = _key(text)
    places = [i for i, choice in enumerate(choices) if _key(choice) == key]
    return places[0] if len(places) == 1 and key else None


def _key(text: str) -> str:
    return normalised(plain_signs(text))


def _quotes(rest: str, choice: str) -> bool:
    """Decide whether a text is an option's, or its beginning up to the end of a sentence."""
    if _key(rest) == _key(choice):
        return True
    sentences = re.split(r"(?<=[.;!?])\s", choice)
    starts = (" ".join(sentences[:count]) for count in range(1, len(sentences)))
    return any(_key(rest) == _key(start) for start in starts)


def _could_be(rest: str, choices: Sequence[str]) -> bool:
    """Decide whether a text says that the answer could be an option, by its text."""
    _, found, behind = f" {_key(rest)} ".partition(" could be ")
    return bool(found) and any(key and f" {key} " in f" {behind}" for key in map(_key, choices))


def _wavers(rest: str, letters: str, place: int) -> bool:
    """Decide whether text behind a letter doubts, or names another option by its letter."""
    named = set(re.findall(rf"(?<![\w'’])([{letters}])(?![\w'’])", rest))
    if _ARTICLE.search(rest):
        named.discard("A")
    if "I" not in re.findall(r"\(?\bI\)", rest):
        named.discard("I")
    return bool(_DOUBT.search(rest)) or bool(named - {letters[place]})


def _stripped(text: str) -> str:
    r"""Drop from a text what surrounds its letter or its words: marks, ``\text{}``, ``option``."""
    text = plain_signs(text) if not text.isascii() else text
    for _ in range(3):
        before = text
        text = without_lead(text).strip(" \t\r\n*_`#\"'")
        match = _TEX.match(text)
        text = match[1] if match else _LEAD.sub("", text, count=1)
        if text == before:
            break
    return text.strip()


def _choices(problem: Problem) -> list[str]:
    choices = problem.meta.get("choices")
    if (
        not isinstance(choices, list | tuple)
        or not 2 <= len(choices) <= len(LETTERS)
        or not all(isinstance(choice, str) for choice in choices)
    ):
        raise ValueError(
            f"meta: choices of problem {problem.uid!r} is {choices!r}, not a list of 2 to"
            f" {len(LETTERS)} texts, which the choice verifier needs"
        )
    return list(choices)
