"""Are two expressions the same number, or the same at a few points?

Most wrong answers differ at the first point tried; what agrees everywhere is equal. Only what has
no value at the points goes on to math-verify, whose simplification takes ten times as long. Only
the worker process imports this file.
"""

from __future__ import annotations

import contextlib
from typing import Any

import math_verify
import sympy

POINTS = ("0.71828182", "2.91735461", "-1.32471795", "41.0313237", "-63.7219311")
"""Values that the unknowns take by turns. Both signs, near and far."""
STEP = sympy.Rational(7, 23)
DIGITS = 30
DIFFERENT = sympy.Float("1e-12")
EQUAL = sympy.Float("1e-25")
ROUNDING = sympy.Rational(5_000_001, 10**13)


def same_expression(answer: Any, gold: Any) -> bool:
    """Decide whether two expressions are equal; 50 % is equal to 0.5 and to 50."""
    whole, gold_whole = _of_percent(answer), _of_percent(gold)
    if whole is not answer or gold_whole is not gold:
        if _same_numbers(answer, gold):
            return True
        answer, gold = whole, gold_whole
    if isinstance(answer, sympy.Symbol) or isinstance(gold, sympy.Symbol):
        return bool(by_math_verify(answer, gold)) if _are_names(answer, gold) else answer == gold
    return _same_numbers(answer, gold)


def _of_percent(value: Any) -> Any:
    """Return 50 for 50 %, and any other value as it is."""
    percent = value.is_Mul and value.args[-1] == sympy.UnevaluatedExpr(sympy.Rational(1, 100))
    return value.args[0] if percent and len(value.args) == 2 else value


def _are_names(*values: Any) -> bool:
    """Decide whether values are letters side by side, as words are read."""
    return all(
        part.is_Symbol or part == sympy.E for value in values for part in sympy.Mul.make_args(value)
    )


def _same_numbers(answer: Any, gold: Any) -> bool:
    """Compare two expressions at points, then, where they agree, exactly or by their form."""
    decimal = answer.has(sympy.Float) or gold.has(sympy.Float)
    one, other = exact(answer), exact(gold)
    symbols = one.free_symbols | other.free_symbols
    if not symbols:
        return _same_constants(one, other, decimal)
    agreed = 0
    for at in points(symbols):
        left, right = (number_at(value.subs(at), DIGITS) for value in (one, other))
        if left is None or right is None:
            continue
        scale = max(abs(left), abs(right))
        if abs(left - right) > DIFFERENT * scale:
            return False
        agreed += bool(abs(left - right) <= EQUAL * scale)
    return agreed >= 3 or by_math_verify(one, other)


def _same_constants(one: Any, other: Any, decimal: bool) -> bool:
    if one.is_infinite or other.is_infinite:
        return bool(one == other)
    left, right = number_at(one, 15), number_at(other, 15)
    if left is None or right is None:
        return bool(by_math_verify(one, other))
    scale = max(abs(left), abs(right))
    if abs(left - right) > max(DIFFERENT, sympy.Float("2e-6") if decimal else 0) * scale:
        return False
    one, other = one.doit(), other.doit()
    if one.is_Rational and other.is_Rational:
        return bool(one == other) or (decimal and _rounds(one, other))
    left, right = number_at(one, DIGITS), number_at(other, DIGITS)
    if left is None or right is None:
        return bool(by_math_verify(one, other))
    if abs(left - right) <= EQUAL * scale:
        return True
    if decimal and left.is_real and right.is_real:
        return _rounds(one, other) if one.is_Rational or other.is_Rational else False
    return scale < DIFFERENT and bool(by_math_verify(one, other))


def _rounds(one: Any, other: Any) -> bool:
    """Decide whether one number is the other, rounded to six digits or more."""
    short, long = sorted((one, other), key=_num_digits)
    if _num_digits(short) < 6 or _num_digits(long) <= _num_digits(short):
        return False
    if long.is_Rational and (long * 10**6).is_Integer:
        return False
    exponent = int(sympy.floor(sympy.log(abs(sympy.N(long, DIGITS)), 10)))
    tolerance = min(ROUNDING, sympy.Rational(10) ** (exponent - 5) / 2)
    return bool(abs(sympy.N(short - long, DIGITS)) <= tolerance)


def _num_digits(value: Any) -> float:
    """Return how many digits a number has from the first that is not 0 to the last."""
    if not value.is_Rational:
        return float("inf")
    denominator, twos, fives = int(value.q), 0, 0
    while denominator % 2 == 0:
        denominator, twos = denominator // 2, twos + 1
    while denominator % 5 == 0:
        denominator, fives = denominator // 5, fives + 1
    if denominator != 1:
        return float("inf")
    return len(str(abs(int(value * 10 ** max(twos, fives)))).rstrip("0"))


def exact(value: Any) -> Any:
    """Return an expression whose decimals and percents are fractions."""
    known = {number: sympy.Rational(str(number)) for number in value.atoms(sympy.Float)}
    known |= {held: held.args[0] for held in value.atoms(sympy.UnevaluatedExpr)}
    return value.xreplace(known) if known else value


def points(symbols: Any) -> list[dict[Any, Any]]:
    """Return places at which to compare; no two of them are proportional."""
    names = sorted(symbols, key=str)
    return [
        {
            name: sympy.Rational(POINTS[(start + at) % len(POINTS)]) * (1 + at * STEP)
            for at, name in enumerate(names)
        }
        for start in range(len(POINTS))
    ]  # fmt: skip


def number_at(value: Any, digits: int) -> Any:
    """Return the number that an expression is, or ``None``; one that is none has no value."""
    if value.is_Rational:
        return value
    with contextlib.suppress(
        TypeError, ValueError, ArithmeticError, AttributeError, RecursionError
    ):
        number = sympy.N(value, digits)
        if not number.is_number or number.has(sympy.nan, sympy.zoo, sympy.oo):
            return None
        real, _ = number.as_real_imag()
        return number if real.is_Float or real.is_Rational else None
    return None


def by_math_verify(answer: Any, gold: Any) -> bool:
    """Decide as math-verify does, which may take long."""
    return bool(math_verify.verify(gold, answer, timeout_seconds=None, raise_on_error=True))
