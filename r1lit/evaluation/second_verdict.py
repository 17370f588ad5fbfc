r"""A second verdict on a recorded response, from its text and its gold answer alone.

It needs no problem, no process and no model, so it can look at the responses of a finished run. It
knows numbers and arithmetic: an expression counts as the gold one if it has the same value and uses
the same numbers. Of all else it knows whether two texts are the same but for signs and spaces.
"""

from __future__ import annotations

import re
from fractions import Fraction

from r1lit.text.extract import extract_final
from r1lit.text.plain_numbers import number_of
from r1lit.verifiers.countdown import decide_expression, plain_expression

ROUNDED = Fraction(1, 100)
"""Two decimals that differ by less than this share may be one number, rounded."""

_LOOKS = re.compile(r"\\(?:boxed|text|mathrm|left|right)|[{}$\s,]")
_NAME = re.compile(r"^[A-Za-z]\w*\s*=\s*(?=\S)")


def is_right(response: str, gold: str) -> bool | None:
    r"""Return whether a response's answer is the gold one, or None where that is not known.

    The answer is what stands last in ``<answer>`` or ``\boxed{}``, else the last line.

    >>> is_right("<answer> 6*7 </answer>", "7 * 6"), is_right("<answer> 6 + 7 </answer>", "7 * 6")
    (True, False)
    >>> is_right("So it is 0.50", "1/2"), is_right("<answer> blue </answer>", "red")
    (True, None)
    """
    answer = answer_of(response)
    if not answer or not gold.strip():
        return None
    if _plain(answer) == _plain(gold):
        return True
    value, wanted = _value(answer), _value(gold)
    if value is None or wanted is None:
        return None
    if value[0] != wanted[0]:
        far = abs(value[0] - wanted[0]) > ROUNDED * abs(wanted[0])
        return False if far or "." not in answer + gold else None
    if len(wanted[1]) == 1 or value[1] == wanted[1]:
        return True
    return None  # equal, but of other numbers, which the problem may allow or not


def answer_of(response: str) -> str:
    """Return the text that answers: in its tags or box, in the last line, or behind its words."""
    found = extract_final(response)
    if found is None:
        lines = response.strip().splitlines()
        found = re.sub(r"</?[a-z]+>", " ", lines[-1]) if lines else ""
        found = re.split(r":|\bis\b", found)[-1]
    return _NAME.sub("", found.strip().rstrip("."))


def _plain(text: str) -> str:
    """Return a text without spaces and looks, signs of multiplication alike."""
    text = _LOOKS.sub("", text.replace(r"\times", "*").replace("×", "*"))
    return text.rstrip(".").lower()


def _value(text: str) -> tuple[Fraction, list[int]] | None:
    """Return the exact value of a number or of an expression, and the numbers that it uses."""
    number = number_of(text.strip().strip("$").strip())
    if number is not None:
        return number, [0]
    numbers = sorted(map(int, re.findall(r"[0-9]{1,9}", text.split("=")[0])))
    _, value, _ = decide_expression(plain_expression(text), numbers, 0)
    return None if value is None else (Fraction(value), numbers)
