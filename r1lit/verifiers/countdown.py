r"""Countdown: expressions that use each number once and reach the target.

The answer is an expression of whole numbers, ``+ - * /`` (or ``× ÷ · −``) and parentheses, such as
``(3 + 5) * 7``; ``= 56`` may follow and must then be true. LaTeX's signs (``\times``, ``\cdot``,
``\div``) and dollar signs around the whole are read too. There is no unary minus, no power, no
juxtaposition. Arithmetic is exact. Text is never evaluated as Python: this grammar is all there is,

    sum = product (("+" | "-") product)*     product = atom (("*" | "/") atom)*
    atom = digits | "(" sum ")"
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

from r1lit.problems import Problem, Status, Verdict
from r1lit.text.extract import extract_final
from r1lit.verifiers.base import Verifier

MAX_CHARACTERS = 200
MAX_NESTING = 20
_SPACE = " \t\n\r"
_TOKEN = re.compile(rf"[{_SPACE}]*([0-9]+|[^{_SPACE}])")
_SIGNS = {r"\times": "*", r"\cdot": "*", r"\div": "/", r"\left": "", r"\right": ""}
_SIGN = re.compile(r"\\(?:times|cdot|div|left|right)(?![A-Za-z])")
_LOOK_ALIKES = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-"})


class _Unparsed(Exception):
    """The text is not in the grammar."""


class _Expression:
    """A recursive-descent reader: ``value`` is exact, ``numbers`` are those read, in order.

    With ``free``, a product needs no sign beside a parenthesis.
    """

    def __init__(self, text: str, free: bool = False) -> None:
        self._free = free
        self._tokens = [*_TOKEN.findall(text.translate(_LOOK_ALIKES).rstrip(_SPACE)), ""]
        self._at = 0
        self._nesting = 0
        self.numbers: list[int] = []
        self.value = self._sum()
        self.claim = self._claim()

    def _sum(self) -> Fraction:
        value = self._product()
        while (operation := self._tokens[self._at]) in ("+", "-"):
            self._at += 1
            right = self._product()
            value = value + right if operation == "+" else value - right
        return value

    def _product(self) -> Fraction:
        value, divided = self._atom(), False
        while (operation := self._tokens[self._at]) in ("*", "/") or self._is_beside():
            implicit = operation not in ("*", "/")
            if implicit and divided:
                raise _Unparsed("may be read in two ways: a product without a sign after /")
            self._at += not implicit
            right = self._atom()
            value = value / right if operation == "/" else value * right
            divided = divided or operation == "/"
        return value

    def _is_beside(self) -> bool:
        """Decide whether a product without a sign goes on here: ``)(``, ``4(`` or ``)4``."""
        before, here = self._tokens[self._at - 1], self._tokens[self._at]
        return self._free and (here == "(" or (before == ")" and "0" <= here[:1] <= "9"))

    def _atom(self) -> Fraction:
        token = self._tokens[self._at]
        self._at += 1
        if "0" <= token[:1] <= "9":
            self.numbers.append(int(token))
            return Fraction(self.numbers[-1])
        if token != "(":
            raise _Unparsed(f"has {token!r} where a number should be" if token else "ends early")
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            raise _Unparsed(f"nests parentheses deeper than {MAX_NESTING}")
        value = self._sum()
        if self._tokens[self._at] != ")":
            raise _Unparsed("has an unclosed parenthesis")
        self._at += 1
        self._nesting -= 1
        return value

    def _claim(self) -> int | None:
        rest = self._tokens[self._at : -1]
        if not rest:
            return None
        if rest[0] != "=":
            raise _Unparsed(f"has {rest[0]!r} where an operation should be")
        if len(rest) != 2 or not "0" <= rest[1][0] <= "9":
            raise _Unparsed("has no single whole number after =")
        return int(rest[1])


class CountdownVerifier(Verifier):
    r"""Decide about Countdown: ``problem.meta`` holds ``numbers`` and ``target``.

    The answer taken is the last ``<answer>`` or ``\boxed{}`` outside thinking.
    ``canonical`` is the value of an expression that uses the numbers rightly, so that different
    expressions of equal value vote together; any other answer casts no vote.

    >>> meta = {"numbers": [3, 5, 7], "target": 56}
    >>> problem = Problem(uid="", question="", answer="", source="", meta=meta)
    >>> CountdownVerifier().verify("<answer>(3 + 5) * 7</answer>", problem).value
    1.0
    >>> CountdownVerifier().verify("<answer>3 + 5 * 7</answer>", problem).reason
    'equals 38, not 56'
    """

    needs = (("numbers",), ("target",))
    needs_answer = False

    def verify(self, response: str, problem: Problem) -> Verdict:
        """Decide about one response.

        Raises:
            ValueError: if ``problem.meta`` lacks ``numbers`` or ``target``.
        """
        missing = {"numbers", "target"} - problem.meta.keys()
        if missing:
            raise ValueError(
                f"meta: problem {problem.uid!r} has no {' and no '.join(sorted(missing))}, which"
                " the countdown verifier needs"
            )
        answer = plain_expression(extract_final(response))
        status, canonical, reason = decide_expression(
            answer,
            problem.meta["numbers"],
            problem.meta["target"],
            problem.meta.get("num_used"),
        )
        return Verdict(
            value=float(status == "right"),
            status=status,
            canonical=canonical,
            reason=reason,
        )


def plain_expression(answer: str | None) -> str | None:
    r"""Write LaTeX's signs as the grammar has them.

    >>> plain_expression(r"$(3 + 5) \times 7$")
    '(3 + 5) * 7'
    """
    if answer is None:
        return None
    answer = answer.strip().strip("$").strip()
    return _SIGN.sub(lambda sign: _SIGNS[sign[0]], answer)


def decide_expression(
    answer: str | None,
    numbers: Sequence[int],
    target: int,
    num_used: int | None = None,
    free: bool = False,
) -> tuple[Status, str | None, str]:
    """Return status, canonical and reason of one expression; ``None`` is no answer.

    With ``num_used`` it uses so many of the numbers, otherwise all. With ``free``, products need no
    sign beside a parenthesis.
    """
    if answer is None:
        return "unparsed", None, "no <answer>"
    if len(answer) > MAX_CHARACTERS:
        return "unparsed", None, f"is longer than {MAX_CHARACTERS} characters"
    try:
        expression = _Expression(answer, free)
    except _Unparsed as error:
        return "unparsed", None, str(error)
    except ZeroDivisionError:
        return "wrong", None, "divides by zero"
    misuse = _misuse(expression.numbers, numbers, num_used)
    if misuse:
        return "wrong", None, misuse
    if expression.claim is not None and expression.claim != expression.value:
        return "wrong", None, f"equals {expression.value}, not {expression.claim} as it says"
    canonical = str(expression.value)
    if expression.value != target:
        return "wrong", canonical, f"equals {canonical}, not {target}"
    return "right", canonical, ""


def _misuse(used: Sequence[int], given: Sequence[int], num_used: int | None) -> str:
    """Say how ``used`` differs from ``given``, or from so many of it; empty when it does not."""
    if num_used in (None, len(given)) and sorted(used) == sorted(given):
        return ""
    used_times, given_times = Counter(used), Counter(given)
    for number, times in used_times.items():
        if number not in given_times:
            return f"uses {number}, which is not given"
        if times > given_times[number]:
            return f"uses {number} {_times(times)}"
    if num_used is not None:
        return "" if len(used) == num_used else f"uses {len(used)} numbers, not {num_used}"
    unused = next(n for n, times in given_times.items() if used_times[n] < times)
    if unused not in used_times:
        return f"does not use {unused}"
    return f"uses {unused} only {_times(used_times[unused])}"


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")
