"""Numbers as texts write them: whole ones, decimals and fractions of whole ones."""

from __future__ import annotations

import re
from fractions import Fraction

MAX_CHARACTERS = 2000
_DOLLARS = re.compile(r"^\$([^$]+)\$$")
_INTEGER = re.compile(r"^(?:\\?\$ ?)?([-+]?)([0-9]+|[0-9]{1,3}(?:,[0-9]{3})+)$", re.ASCII)
_FRACTION = re.compile(
    r"^([-+]?)(?:\\[dt]?frac\{(-?\d+)\}\{(\d+)\}|(\d+)/(\d+)|(\d+)()|(\d*\.\d+)())$", re.ASCII
)


def whole_number(text: str) -> int | None:
    r"""Read a plain whole number; commas between thousands and dollar signs are allowed.

    >>> whole_number("$1,080"), whole_number("$7$"), whole_number("10,80")
    (1080, 7, None)
    """
    if len(text) > MAX_CHARACTERS:  # Python refuses to read more than 4,300 digits
        return None
    dollars = _DOLLARS.match(text)
    match = _INTEGER.match(dollars.group(1).strip() if dollars else text)
    return int(match.group(1) + match.group(2).replace(",", "")) if match else None


def number_of(text: str) -> Fraction | None:
    r"""Read a whole number, a decimal or a fraction of whole numbers, exactly.

    >>> number_of("1,080"), number_of("-0.5"), number_of(r"\frac{14}{3}"), number_of("1/0")
    (Fraction(1080, 1), Fraction(-1, 2), Fraction(14, 3), None)
    """
    whole = whole_number(text)
    if whole is not None or len(text) > MAX_CHARACTERS:
        return None if whole is None else Fraction(whole)
    match = _FRACTION.match(text)
    if not match:
        return None
    over, under = (part for part in match.groups()[1:] if part is not None)
    if under and not int(under):
        return None
    return (-1 if match[1] == "-" else 1) * Fraction(over) / int(under or 1)
