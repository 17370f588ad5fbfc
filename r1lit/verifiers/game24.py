r"""Game of 24: does an expression use four given numbers once each and reach 24?

The grammar, its signs and its exact arithmetic are Countdown's; ``= 24`` may follow.
"""

from __future__ import annotations

import re
import time

from r1lit.problems import Problem, Verdict
from r1lit.text.extract import extract_final, thinking_and_answer
from r1lit.text.notation import INVISIBLE
from r1lit.verifiers.base import Verifier, conclude
from r1lit.verifiers.countdown import decide_expression, plain_expression

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

    needs_answer = False

    def verify(self, response: str, problem: Problem) -> Verdict:
        """Decide about one response.

        Raises:
            ValueError: if ``meta["numbers"]`` holds anything but whole numbers.
        """
        start = time.perf_counter()
        numbers, target = _numbers(problem), problem.meta.get("target", 24)
        return conclude(*decide_expression(_answer(response), numbers, target), start)


def _answer(response: str) -> str | None:
    answer = extract_final(response)
    if answer is None:
        _, text = thinking_and_answer(response)
        lines = [] if "<answer>" in text or "\\boxed" in text else _LINE.findall(text)
        answer = lines[-1].translate(INVISIBLE).rstrip(" \t*.") if lines else None
    return plain_expression(answer)


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
