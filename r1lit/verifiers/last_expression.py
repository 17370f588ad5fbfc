r"""The weakest form of an answer: what a response without ``<answer>`` and ``\boxed{}`` ends on.

For scoring responses whose prompt specified no format. Training leaves it off: a policy that is
paid for it need not learn to commit to an answer.
"""

from __future__ import annotations

import re

from r1lit.text.extract import thinking_and_answer
from r1lit.text.notation import INVISIBLE

MAX_TAIL = 2000
_BROKEN = re.compile(r"\\boxed|\\fbox|<answer>|</answer>|<think>")
UNSURE = (
    r"\b(?:not|cannot|never|nor|neither|might|may|could|maybe|perhaps|possibly|probably)\b"
    r"|n['’]t\b|不是|不可能|可能"
)
"""Words between ``the answer`` and ``is`` or ``be`` that take it back."""
_SAYS = re.compile(
    rf"(?:\banswer\b(?:(?!{UNSURE})[^.\n]){{0,60}}?\b(?:is|be|equals)\b\s*:?"
    r"|\banswer\b\s*\**\s*:|\banswer\b\s*=(?=\s)"
    r"|(?:答案|结果)\s*(?:应该|应当)?\s*(?:(?:就?是|为|等于)\s*[：:=]?|[：:=])|^答\s*[：:]"
    r"|^#{4}(?=[ \t]*[-+$\\\d(.]))\s*\**\s*",
    re.IGNORECASE | re.MULTILINE,
)
_MATH = re.compile(  # a dollar sign before a digit or behind a space closes nothing: it is money
    r"\$\$(.+?)\$\$|(?<!\\)\$(?!\s)((?:\\.|[^$\\\n])*(?:\\.|[^$\\\s]))\$(?!\d)"
    r"|(?<!\\)\$[ \t]+((?:\\[A-Za-z]+|\\.|[A-Za-z](?![A-Za-z])|[^$\\A-Za-z\n])+?)[ \t]\$(?!\s*\d)"
    r"|\\\((.+?)\\\)|\\\[(.+?)\\\]",
    re.DOTALL,
)
_END = re.compile(r"\n|[.。!！?？;；](?=\s|\*|$)|。")
_NUMBER = re.compile(  # with the unit that is glued to it, and never a part of a number
    r"(?<![\w.:])[-−]?[$€£¥]?(?:\d+ (?=\d+/\d))?\d[\d,]*+(?>(?:\.\d+)?)(?>(?:/\d+)?)"
    r"(?>(?:%|[A-Za-z]{1,4}(?:/[a-z]{1,2})?)?)(?![\w^]|[.:]\d)",
    re.ASCII,
)
_LISTS = re.compile(r"\s*(?:,\s*(?:and\b\s*)?|\band\b\s*|[、和])")
_TAKEN_BACK = re.compile(
    rf"(?:(?:{UNSURE})\s*(?:be|equal(?:\s+to)?|是|为)?|大[约概]是?|\bor|或者?)\s*[*$\\(\[]*$",
    re.IGNORECASE,
)
_COMES_BEFORE = re.compile(  # 3 + 5, 2^5 and minus 5 do not end on 5
    r"(?:[\d)\]}%$π]\s*[-−–+*×·÷/^x]|\d\s+:|[√^]|\b(?:sqrt|log|ln|sin|cos|tan)\s*\(?"
    r"|\b(?:minus|negative|plus|times|twice|half(?:\s+of)?|out\s+of|divided\s+by|root\s+of))"
    r"\s*[$(]*$",
    re.IGNORECASE,
)
_GOES_ON = re.compile(
    r"\s*[+×÷]\s*[A-Za-z(]|\s+\*\s+[A-Za-z(]|\W{0,3}\b(?:hundred|thousand|[a-z]+illions?|dozen"
    r"|lakhs?|crores?|squared|cubed|factorial|and\s+a\s+(?:half|quarter|third))\b|[万亿千百]",
    re.IGNORECASE,
)
_OR = re.compile(r"\bor\b|或|\?|？", re.IGNORECASE)
_EQUALS = re.compile(r"(?<![<>=!:])=(?![=>])")


def last_expression(response: str) -> str | None:
    r"""Return the expression that the answer part of a response ends on, or ``None``.

    In this order: what follows the last ``the answer is``, in English or Chinese, or the last line
    ``#### …`` of GSM8K; the last ``$…$``;
    the last number of the last line, if that line does not waver (``or``, a question mark). What is
    taken back (``not 72``, ``might be 72``, ``$3$ or $4$``) is no answer, nor is a number
    cut out of an expression (``3 + 72``, ``72 million``). A response that began
    ``<answer>`` or ``\boxed{`` and did not finish it has none.

    >>> last_expression("She sold 48 + 24 clips. The answer is 72.")
    '72'
    >>> last_expression(r"Hence $x = 3$, and so $x + 1 = 4$")
    '4'
    >>> last_expression("So 3 or 4"), last_expression(r"so \boxed{4")
    (None, None)
    """
    _, text = thinking_and_answer(response)
    text = text.translate(INVISIBLE).strip()
    if _BROKEN.search(text):
        return None
    text = text[-MAX_TAIL:]
    stated = stated_answer(text)
    if stated is not None:
        return stated
    formulas = list(_MATH.finditer(text))
    if formulas:
        behind = text[formulas[-1].end() :]
        end = _END.search(behind)
        run = _run(formulas, text)
        if _OR.search(behind[: end.end() if end else None]) or _part_of_more(text, run):
            return None
        inside = [next(filter(None, formula.groups())) for formula in run]
        listed = not any(map(_EQUALS.search, inside))  # x = 3 and x + 1 = 4 is a derivation
        return ", ".join(inside) if listed and len(run) > 1 else _right_side(inside[-1])
    last_line = text.rpartition("\n")[2]
    numbers = list(_NUMBER.finditer(last_line))
    if not numbers or _OR.search(last_line):
        return None
    run = _run(numbers, last_line)
    if _part_of_more(last_line, run):
        return None
    ends = not last_line[run[-1].end() :].strip(" .。．*)]")  # not "he pays $67, $72 in all"
    return ", ".join(number[0].rstrip(",") for number in (run if ends else run[-1:]))


def _part_of_more(text: str, run: list[re.Match[str]]) -> bool:
    """Decide whether what was found is taken back, or cut out of an expression: 3 + 5, 5 million.

    Only the 60 characters before and behind it are looked at.
    """
    start, end = run[0].start(), run[-1].end()
    before, behind = text[max(0, start - 60) : start], text[end : end + 60]
    return any((_TAKEN_BACK.search(before), _COMES_BEFORE.search(before), _GOES_ON.match(behind)))


def _run(found: list[re.Match[str]], text: str) -> list[re.Match[str]]:
    """Return the last of what was found, with those before it in one list: ``3, 4 and 5``."""
    first = len(found) - 1
    while first and _LISTS.fullmatch(
        text[found[first - 1].start() + len(found[first - 1][0].rstrip(",")) : found[first].start()]
    ):
        first -= 1
    return found[first:]


def stated_answer(text: str) -> str | None:
    """Return what the last ``the answer is …`` of a text says, to the end of its sentence.

    >>> stated_answer("So the answer is 5 or 6. Done"), stated_answer("no such words")
    ('5 or 6', None)
    """
    statements = list(_SAYS.finditer(text[-MAX_TAIL:]))
    return _to_sentence_end(text[-MAX_TAIL:][statements[-1].end() :]) if statements else None


def _to_sentence_end(rest: str) -> str | None:
    formula = _MATH.match(rest)
    if formula:
        behind = rest[formula.end() :]
        if not _OR.search(behind[: end.end() if (end := _END.search(behind)) else None]):
            return _right_side(next(filter(None, formula.groups())))
    end = _END.search(rest)
    stop = None if end is None else end.start() + (end[0] in "?？")
    return rest[:stop].strip(" *") or None


def _right_side(formula: str) -> str:
    r"""Take ``4`` of ``x + 1 = 4``; text with aligned lines or several equations stays whole."""
    parts = _EQUALS.split(formula)
    if parts[-1].strip() == "0" and re.search(r"[A-Za-z].*[-+]|[-+].*[A-Za-z]", parts[0]):
        return formula.strip()  # the equation of a line, not its right side
    return parts[-1].strip() if len(parts) > 1 and "," not in formula else formula.strip()
