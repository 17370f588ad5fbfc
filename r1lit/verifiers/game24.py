"""The Game of 24: an expression of the given numbers that is 24.

It reads more than Countdown does: a product needs no sign beside a parenthesis (``(10-4)(13-9)``),
brackets may be of any kind, ``x`` between two terms is a times, and ``24 =`` may come first.
"""

from __future__ import annotations

import re

from r1lit.problems import Problem, Verdict
from r1lit.text.extract import extract_final, thinking_and_answer
from r1lit.text.notation import INVISIBLE
from r1lit.verifiers.base import Verifier, conclude
from r1lit.verifiers.countdown import decide_expression, plain_expression

_FREE_SIGNS = str.maketrans(
    {
        **dict.fromkeys("[{［｛（", "("),
        **dict.fromkeys("]}］｝）", ")"),
        **dict.fromkeys("⋅∗•＊✕✖⨯", "*"),
        **dict.fromkeys("∕⁄／", "/"),
        "＝": "=",
    }
)
_CLOSES = dict(zip(")]}）］｝", "([{（［｛", strict=True))
_FREE_LATEX = re.compile(
    r"\\([{}]|[lr](?:brack|brace)(?![A-Za-z])|[,;:! ]|ast(?![A-Za-z])|(?:big|Big|bigg"
    r"|Bigg)[lr]?(?![A-Za-z]))"
)
_TIMES = re.compile(r"(?<=[0-9)])\s*[xX]\s*(?=[0-9(])")
_FIRST = re.compile(r"^\s*([0-9]+)\s*=\s*([^=]*[^=\s0-9][^=]*)$")
_LINE = re.compile(r"^[ \t*]*answer[ \t*]*:[ \t*]*(\S.*)$", re.IGNORECASE | re.MULTILINE)


class Game24Verifier(Verifier):
    r"""Decides about the Game of 24: ``problem.meta`` holds ``numbers``, and ``target`` if not 24.

    ``numbers`` is a list of whole numbers or a text of them, ``1 1 4 6``. The answer taken is the
    last ``<answer>`` or ``\boxed{}`` outside thinking, else the last line ``Answer: …``, which is
    the form of Tree of Thoughts (arXiv 2305.10601).

    >>> problem = Problem(uid="", question="", answer="", source="", meta={"numbers": "4 9 10 13"})
    >>> Game24Verifier().verify("Answer: (10 - 4) * (13 - 9) = 24", problem).status
    'right'
    >>> Game24Verifier().verify("<answer> 4 * 9 - 10 </answer>", problem).reason
    'does not use 13'
    """

    needs = (("numbers",),)
    needs_answer = False

    def verify(self, response: str, problem: Problem) -> Verdict:
        """Decide about one response.

        Raises:
            ValueError: if ``meta["numbers"]`` holds anything but whole numbers.
        """
        numbers, target = _numbers(problem), problem.meta.get("target", 24)
        answer = _answer(response)
        return conclude(*decide_expression(answer, numbers, target, free=True))


def _answer(response: str) -> str | None:
    answer = extract_final(response)
    if answer is None:
        _, text = thinking_and_answer(response)
        lines = [] if "<answer>" in text or "\\boxed" in text else _LINE.findall(text)
        answer = lines[-1].translate(INVISIBLE).rstrip(" \t*.") if lines else None
    answer = plain_expression(answer)
    return None if answer is None else _plain(answer)


def _plain(answer: str) -> str:
    r"""Write brackets, times and ``24 =`` as the grammar has them.

    >>> _plain(r"24 = [10 - 4] x \{13 - 9\}")
    '(10 - 4)*(13 - 9) = 24'
    """
    latex = {
        "{": "{",
        "}": "}",
        "lbrack": "[",
        "rbrack": "]",
        "lbrace": "{",
        "rbrace": "}",
        "ast": "*",
    }
    answer = _FREE_LATEX.sub(lambda sign: latex.get(sign[1], " "), answer)
    if _pairs_up(answer):
        answer = answer.translate(_FREE_SIGNS)
    answer = _TIMES.sub("*", answer)
    return _FIRST.sub(r"\2 = \1", answer)


def _pairs_up(text: str) -> bool:
    """Decide whether every bracket is closed by one of its kind."""
    opened = []
    for sign in text:
        if sign in "([{（［｛":
            opened.append(sign)
        elif sign in _CLOSES and (not opened or opened.pop() != _CLOSES[sign]):
            return False
    return not opened


def _numbers(problem: Problem) -> list[int]:
    numbers = problem.meta.get("numbers")
    if isinstance(numbers, str) and re.fullmatch(r"[0-9]+(?:[ ,]+[0-9]+)*", numbers.strip()):
        return [int(number) for number in re.findall(r"[0-9]+", numbers)]
    if (
        not isinstance(numbers, list | tuple)
        or not numbers
        or not all(type(number) is int and number >= 0 for number in numbers)
    ):
        raise ValueError(
            f"meta: numbers of problem {problem.uid!r} is {numbers!r}, not a list of whole numbers,"
            " which the game24 verifier needs"
        )
    return list(numbers)
