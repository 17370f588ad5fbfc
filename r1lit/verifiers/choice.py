r"""Multiple choice: the option that a response commits to.

The text that commits is the last ``<answer>`` or ``\boxed{}`` outside thinking, else the answer of
a JSON object, else what follows the last ``the answer is`` or the last ``option C is correct``,
else an answer part of one line, else the only line that is labelled with a letter, if it is the
last one, or the first one and no other letter follows. In it stands one of

    a letter            C   (C)   C.   \text{C}   **C**   option C   C is correct
    a letter and text   C. Paris   (C) Paris   C (Paris)
    an option's text    Paris

Text that names a second option, denies one or doubts commits to nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from r1lit.problems import LETTERS, Problem, Verdict
from r1lit.text.extract import extract_final, taken_back, thinking_and_answer
from r1lit.text.json_answer import json_answer
from r1lit.text.notation import INVISIBLE, plain_signs, without_lead
from r1lit.verifiers.base import Verifier, conclude
from r1lit.verifiers.exact import find_text, normalised
from r1lit.verifiers.last_expression import UNSURE

MAX_CHARACTERS = 2000
MAX_SENTENCE = 100
_JUDGED = r"\s+\(?([A-J])\)?\s+is\s+(?:the\s+)?"
_SAYS = re.compile(
    rf"(?:\b(?:answer|option|choice)\b(?!{_JUDGED}(?:correct|right|best|true|wrong|incorrect|false))"
    rf"(?:(?!{UNSURE})[^.\n]){{0,40}}?(?:\bis\b|\bbe\b|:)\s*:?"
    r"|【(?:正确)?答案】\s*[：:]?|(?:答案|选项)\s*(?:应该?)?\s*(?:是|为|选|：|:)+|(?:故|因此|所以|应)选\s*[：:]?)\s*\**\s*",
    re.IGNORECASE,
)
_NAMES_ANOTHER = re.compile(
    r"\b(?:wrong|incorrect|false|untrue|invalid|impossible|unlikely|worst|bad|least(?:\s+\w+)?|opposite"
    r"|second(?:[\s-]best)?|other|another|first|initial|original|previous|earlier|eliminated|rejected"
    r"|excluded|discarded|ruled[\s-]out|trap|distractor|common(?:\s+\w+)?|tempting|tempted|\w+['’]s)"
    r"\s+(?:of\s+(?:the|my|our|an?)\s+)?$|(?:错误|不正确|不对|不可能|不)的?\s*$",
    re.IGNORECASE,
)
"""Words before ``answer`` that make it another than the one that is given."""
_AVOIDS = re.compile(
    r"\b(?:avoid|reject|exclude|eliminate|discard|dismiss|rule|wrong|incorrect|false|unlikely|least"
    r"|except|but)\w*",
    re.IGNORECASE,
)
_DENIED = re.compile(r"^[\s*_`\"'“(\[]*[!！¬≠~]")
_IS_RIGHT = re.compile(
    rf"\b(?:answer|option|choice){_JUDGED}(?:correct|right|best|true)\b(?!\s*(?:only\b|if\b|\?))",
    re.IGNORECASE,
)
_SENTENCE = re.compile(
    r"\n|[!?。！？；;]|[.](?=\s+[A-Z(\[【\u4e00-\u9fff]|\s*\*|\s*$)|【(?:解析|分析|详解|解答|点评)】"
)
_UNSURE = re.compile(UNSURE, re.IGNORECASE)
_LETTER = re.compile(r"(?<![\w'’])([B-HJ])(?![\w'’])|\(([A-J])\)")
_LABEL_LINE = re.compile(r"^[*_\s]*(?:\(?[A-J]\)?[.:]?[*_\s]*$|(?:\([A-J]\)|[A-J][.:)])\s)")
_ALSO = re.compile(
    r"(?<![\w'’])([A-J])\)?\s+(?:is|are|works|may be|might be|could be|would be)\s+"
    r"(?:also|too|equally|as well|possible|fine|correct|right|acceptable|true)\b"
    r"|(?:^|[.;!]\s+)(?:or|maybe|perhaps|possibly)\b[^.\n]*?(?<![\w'’])([A-J])(?![\w'’])",
    re.IGNORECASE | re.MULTILINE,
)


_RIGHT = (
    r"(?:(?:the\s+)?(?:correct|right|best|true)(?:\s+(?:answer|option|choice|one))?"
    r"|(?:the|my|our)\s+(?:final\s+)?(?:answer|choice))"
)
_SO = (
    r"^(?:(?:so|thus|hence|therefore|consequently|in conclusion|overall|finally)\b\s*,?\s*)?"
    r"(?:(?:i|we)\s*(?:(?:would|will|['’]d|['’]ll)\s*)?(?:choose|pick|select|go\s+with)\s+|it(?:\s+is|['’]s)\s+)?"
)
_DECLARED = re.compile(
    rf"{_SO}(?:(?:the|my|our)\s+)?(?:(?:correct|right|best|final)\s+)?(?:(?:answer|option|choice|letter)\s*"
    rf"(?:is\s*)?[:：]?\s*)?[(\[]?([A-J])[)\]]?(?:,?\s+(?:is|as\s+it\s+is)\s+{_RIGHT})?$"
    r"|^(?:所以|因此|因而|故|综上所述|综上|总之|本题|此题|该题|正确|的|我|应该?|当)*[,，]?\s*"
    r"(?:【?(?:正确)?的?(?:答案|选项|选择)】?\s*(?:应该?|当)?(?:是|为|选择?)?\s*[：:]?\s*|应?选择?\s*[：:]?\s*)*"
    r"[(（]?([A-J])[)）]?\s*(?:选?项)?\s*(?:(?:是|为)?\s*(?:正确|对)\s*的?\s*(?:答案|选项)?)?$",
    re.IGNORECASE,
)
_BARE = re.compile(r"^[(\[]?[A-J][)\]]?$", re.IGNORECASE)
_CONFIRMS = re.compile(r"\bis\b.*(?:correct|right|best|true|answer|choice)|正确|对")


def declared_letter(sentence: str) -> str | None:
    """Return the letter of an option if a sentence declares that and nothing else, or ``None``.

    >>> declared_letter("Hence (A) is correct answer."), declared_letter("因此选项D正确。")
    ('A', 'D')
    >>> declared_letter("Option B is wrong"), declared_letter("本题不选D")
    (None, None)
    """
    if len(sentence) > MAX_SENTENCE:
        return None
    match = _DECLARED.match(" ".join(sentence.split()).strip(" *_.。．!！\"'"))
    return (match[1] or match[2]).upper() if match else None


def committing_text(response: str) -> str | None:
    r"""Return the text in which a response commits to an option, or ``None``.

    >>> committing_text("So the answer is (C)."), committing_text("Rome is far.\n\nC")
    ('C', 'C')
    >>> committing_text("The answer cannot be\nC or D") is None
    True
    """
    answer = extract_final(response)
    if answer is not None:
        return json_answer(answer) or answer
    _, text = thinking_and_answer(response)
    if "<answer>" in text or "\\boxed" in text:
        return None
    text = text.translate(INVISIBLE).strip()
    if (answer := json_answer(text)) is not None:
        return answer
    if _DENIED.match(text):
        return text
    whole, text = len(text) <= MAX_CHARACTERS, text[-MAX_CHARACTERS:]
    sentences = [part.strip() for part in _SENTENCE.split(text) if part and part.strip(" *.")]
    asks = text.rstrip(" *\n").endswith(("?", "？"))
    if (
        sentences
        and not asks
        and not _BARE.match(sentences[-1])
        and (letter := declared_letter(sentences[-1]))
    ):
        confirmed = [s for s in sentences if _CONFIRMS.search(s[:MAX_SENTENCE])]
        if not _CONFIRMS.search(sentences[-1]):
            return letter
        return letter if {declared_letter(s) for s in confirmed} - {None} == {letter} else None
    declared = [said for said in _SAYS.finditer(text) if not _is_of_another(text, said)]
    judged = list(_IS_RIGHT.finditer(text))
    if not declared and _SAYS.search(text) and not judged:
        return None
    if judged and (not declared or judged[-1].start() > declared[-1].start()):
        return _judged_right(text, judged)
    if not declared:
        return find_text(response) or _labelled_line(text, whole)
    rest = text[declared[-1].end() :]
    end = _SENTENCE.search(rest)
    while end and end.start() < 3 and end[0] == ".":  # "B. Paris"
        end = _SENTENCE.search(rest, end.end())
    if end is None:
        return rest.strip(" *") or None
    if taken_back(rest, end.start()):
        return None
    sentence = rest[: end.start() + (end[0] in "?？")]
    if any((found[1] or found[2]) not in sentence for found in _ALSO.finditer(rest[end.start() :])):
        return None
    return sentence.strip(" *") or None


def _is_of_another(text: str, said: re.Match[str]) -> bool:
    """Decide whether ``the … answer … is`` is about another than the right one: the wrong one."""
    before = text[max(0, said.start() - 60) : said.start()]
    return bool(_NAMES_ANOTHER.search(before) or _AVOIDS.search(said[0]))


def _judged_right(text: str, judged: list[re.Match[str]]) -> str | None:
    """Return the one letter that is declared right, unless the sentence takes it back."""
    sentence = re.split(r"[.!?\n]", text[: judged[-1].start()])[-1]
    letters = {match[1].upper() for match in judged}
    return letters.pop() if len(letters) == 1 and not _UNSURE.search(sentence) else None


def _labelled_line(text: str, whole: bool) -> str | None:
    """Return the only line that is labelled, at the end or the beginning of a text."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    labelled = [at for at, line in enumerate(lines) if _LABEL_LINE.match(line)]
    if len(labelled) != 1:
        return None
    line = lines[labelled[0]]
    if labelled[0] == len(lines) - 1:
        return line
    others = {found[1] or found[2] for found in _LETTER.finditer(" ".join(lines[1:]))}
    return line if labelled[0] == 0 and whole and all(o in line[:5] for o in others) else None


FORMS = ("letter", "index", "text")
_LEAD = re.compile(
    r"^(?:(?:(?:so|thus|hence|therefore|i (?:would )?(?:choose|pick|select)|it(?:['’]s| is))\b"
    r"|选择?|故选|应选)\s*[,:]?\s*)?"
    r"(?:the\s+)?(?:(?:correct|best|right|final)\s+)?(?:(?:option|choice|answer|letter|选项|答案)\b\s*"
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

    needs = (("answer",), ("choices",))

    def gold_text(self, problem: Problem) -> str:
        """Return the letter of the right option."""
        return LETTERS[right_choice(problem)]

    def verify(self, response: str, problem: Problem) -> Verdict:
        """Decide about one response.

        Raises:
            ValueError: if ``meta`` has no list of 2 to 10 choices, or ``problem.answer`` names none
                or several of them.
        """
        choices = _choices(problem)
        right = right_choice(problem)
        text = committing_text(response)
        if text is None:
            return conclude("unparsed", None, "no answer found")
        if len(text) > MAX_CHARACTERS:
            return conclude("unparsed", None, f"is longer than {MAX_CHARACTERS} characters")
        chosen = read_choice(text, choices)
        if chosen is None:
            return conclude("unparsed", None, f"{text[:60]!r} commits to no option")
        if chosen != right:
            reason = f"chose {LETTERS[chosen]}, not {LETTERS[right]}"
            return conclude("wrong", LETTERS[chosen], reason)
        return conclude("right", LETTERS[chosen], "")


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
    if _DENIED.match(raw) and not any(map(_DENIED.match, choices)):
        return None
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
    return bool(_DOUBT.search(rest) or taken_back(rest, 0) or named - {letters[place]})


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
