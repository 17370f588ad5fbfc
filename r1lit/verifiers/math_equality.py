r"""Equality of two values: numbers, expressions, sets, lists, matrices, relations, named values.

No relation is evaluated before it is compared: sympy turns every equation that it finds impossible
into False, and two of those would be equal. Expressions are compared as numbers, at five points if
they have unknowns. Only expressions without a value there are compared by math-verify. Only the
worker process imports this file. The time limit is the pool's; this file has none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import math_verify
import sympy
from latex2sympy2_extended.latex2sympy2 import is_expr_of_only_symbols
from sympy.core.function import AppliedUndef
from sympy.core.relational import Relational

from r1lit.verifiers.math_reading import BracedSet, Chain, as_set, elements

POINTS = ("0.71828182", "2.91735461", "-1.32471795", "41.0313237", "-63.7219311")
"""Values that the unknowns take by turns. Both signs, near and far."""
STEP = sympy.Rational(7, 23)
DIGITS = 30
MORE_DIGITS = 60
DIFFERENT = sympy.Float("1e-12")
SAME_RATIO = sympy.Float("1e-20")
EQUAL = sympy.Float("1e-25")
MUST_BE_EQUAL = sympy.Float("1e-50")
_FLIPPED = {
    sympy.Gt: sympy.Lt, sympy.Ge: sympy.Le, sympy.Lt: sympy.Gt, sympy.Le: sympy.Ge,
}  # fmt: skip
_SETS = (sympy.Interval, sympy.Union)


def same(answer: Any, gold: Any) -> bool:
    """Decide whether two values are equal.

    ``x = 5`` is 5, and of an equation without a name the last side counts. Sets and lists are
    compared in any order, tuples and values of different names in order, relations by what they
    say of their unknowns. A decimal is equal to an exact number that it rounds to six digits
    (``0.333333`` and 1/3), never to one that can be written shorter.
    """
    answer, gold = settled(answer), settled(gold)
    if answer == gold and len(_listed(answer)) == len(_listed(gold)):
        return True
    decided = _same_named(answer, gold)
    if decided is None:
        decided = _same_regions(answer, gold)
    if decided is not None:
        return decided
    if is_equation(answer) and not isinstance(gold, Relational | Chain):
        if _says_what_it_is(answer, gold):
            return False
        answer = _without_name(answer)
    elif _is_assignment(gold) and not isinstance(answer, Relational | Chain):
        gold = _without_name(gold)
    answer, gold = _alone(answer), _alone(gold)
    if isinstance(answer, sympy.MatrixBase) or isinstance(gold, sympy.MatrixBase):
        return _same_matrix(answer, gold)
    if isinstance(answer, Relational | Chain) and isinstance(gold, Relational | Chain):
        return _same_relation(answer, gold)
    answer, gold = _as_tuple(answer, gold), _as_tuple(gold, answer)
    if _listed(answer) or _listed(gold):
        return _same_list(answer, gold)
    if isinstance(answer, sympy.Expr) and isinstance(gold, sympy.Expr):
        return same_expression(answer, gold)
    return bool(answer == gold)


def says_false(value: Any) -> bool:
    """Decide whether a value says that two things are equal which are not: 6 = 5, x + 2 = x + 1.

    An equation that only holds for some of its unknowns (``a + b = 5``) is not false.
    """
    if isinstance(value, sympy.FiniteSet):
        return any(says_false(part) for part in elements(value))
    if not is_equation(value):
        return isinstance(value, Chain) and any(says_false(part) for part in value.args)
    sides = [settled(side) for side in _sides(value)]
    pairs = [(one, other) for at, other in enumerate(sides) for one in sides[:at]]
    return any(_cannot_be_equal(one, other) for one, other in pairs)


def _cannot_be_equal(one: Any, other: Any) -> bool:
    if not isinstance(one, sympy.Expr) or not isinstance(other, sympy.Expr):
        return not (one.free_symbols | other.free_symbols) and not same(one, other)
    if one.is_Matrix or other.is_Matrix:
        return not (one.free_symbols | other.free_symbols) and not _same_matrix(one, other)
    symbols = one.free_symbols
    if symbols != other.free_symbols or is_expr_of_only_symbols(one):
        return False
    for at in points(symbols) if symbols else [{}]:
        left, right = (number_at(exact(side).subs(at), 15) for side in (one, other))
        apart = DIFFERENT if symbols else sympy.Rational(1, 50)  # 1/3 = 0.33 is no lie
        if left is None or right is None or abs(left - right) <= apart * max(abs(left), abs(right)):
            return False
    return True


def settled(value: Any) -> Any:
    """Return a value whose unions and sums or products of matrices are worked out."""
    if isinstance(value, sympy.Union | sympy.Intersection | sympy.Complement):
        with contextlib.suppress(TypeError, NotImplementedError, ValueError):
            parts = [settled(part) for part in value.args]
            whole = value.func(*(sympy.FiniteSet(*p.args) if _is_list(p) else p for p in parts))
            return BracedSet(*whole.args) if isinstance(whole, sympy.FiniteSet) else whole
    elif isinstance(value, sympy.Eq):
        return sympy.Eq(*map(settled, value.args), evaluate=False)
    elif _is_matrix_expression(value):
        with contextlib.suppress(TypeError, ValueError, AttributeError):  # of no common shape
            return _worked_out(value)
    return value


def _is_list(value: Any) -> bool:
    return isinstance(value, sympy.FiniteSet)


def _is_matrix_expression(value: Any) -> bool:
    if isinstance(value, sympy.Pow):
        return _is_matrix_expression(value.base) or isinstance(value.base, sympy.MatrixBase)
    return isinstance(value, sympy.MatrixExpr) and not isinstance(value, sympy.MatrixBase)


def _worked_out(value: Any) -> Any:
    if not _is_matrix_expression(value):
        return value
    parts = [_worked_out(part) for part in value.args]
    whole = parts[0]
    for part in parts[1:]:
        if isinstance(value, sympy.Pow):
            whole = whole**part
        else:
            whole = whole + part if isinstance(value, sympy.MatAdd) else whole * part
    return sympy.ImmutableDenseMatrix(whole) if isinstance(whole, sympy.MatrixBase) else whole


def is_equation(value: Any) -> bool:
    """Decide whether a value is an equation, or a chain of nothing else."""
    parts = value.args if isinstance(value, Chain) else [value]
    return all(isinstance(part, sympy.Eq) for part in parts)


def _sides(equation: Any) -> list[Any]:
    parts = equation.args if isinstance(equation, Chain) else [equation]
    return [parts[0].lhs, *(part.rhs for part in parts)]


def _distinct_sides(equation: Any) -> list[Any]:
    """Return the sides of a chain of equations, of equal ones (``2 + 3 = 5``) the last."""
    distinct: list[Any] = []
    sides = _sides(equation)
    if len(sides) == 2:
        return sides
    for side in reversed(sides):
        if not any(same(side, other) for other in distinct):
            distinct.insert(0, side)
    return distinct


def _is_assignment(value: Any) -> bool:
    """Decide whether an equation names a value: ``x = 5``, ``5 = x``, not ``7 = 11a + c``."""
    if not is_equation(value):
        return False
    sides = _sides(value)
    ends = (sides[0], sides[-1])
    return any(map(is_expr_of_only_symbols, ends)) or not any(side.free_symbols for side in sides)


def _says_what_it_is(equation: Any, gold: Any) -> bool:
    """Decide whether an equation says of an expression with unknowns that it is a number."""
    unknown = bool(getattr(gold, "free_symbols", ()))
    return unknown and any(
        isinstance(side, sympy.Expr) and not side.free_symbols for side in _sides(equation)
    )


def _without_name(equation: Any) -> Any:
    """Return 5 of ``x = 5``, ``5 = x`` and ``x = 2 + 3 = 5``; else the last side."""
    sides = _sides(equation)
    values = [side for side in sides if not is_expr_of_only_symbols(side)]
    return values[-1] if values and is_expr_of_only_symbols(sides[-1]) else sides[-1]


def _is_name(value: Any) -> bool:
    if isinstance(value, sympy.Tuple | sympy.Mul):
        return all(part.is_Symbol for part in value.args)
    return isinstance(value, sympy.Symbol | AppliedUndef)


def _named(value: Any) -> list[tuple[Any, Any]] | None:
    """Return names and values of ``x = 1, y = 2`` or ``(x, y) = (1, 2)``, or ``None``.

    ``x = 1, 2`` has two values of one name.
    """
    named: list[tuple[Any, Any]] = []
    for part in elements(value) if _is_list(value) else [value]:
        if not is_equation(part):
            return None
        sides = _distinct_sides(part)
        names = [side for side in sides if _is_name(side)]
        values = [side for side in sides if not _is_name(side)]
        if len(names) == 2 and not values:
            names, values = names[:1], names[1:]
        if not names or len(values) != 1:
            return None
        if _is_list(values[0]) and not isinstance(values[0], BracedSet):
            values = _once(elements(values[0]))
        named += [(name, one) for name in names for one in values]
    return [pair for one in named for pair in _by_coordinate(*one, alone=len(named) == 1)] or None


def _once(values: list[Any]) -> list[Any]:
    """Return values without the tuples and intervals that stand there before."""
    return [
        value
        for at, value in enumerate(values)
        if isinstance(value, sympy.Expr) or value not in values[:at]
    ]


def _by_coordinate(name: Any, value: Any, alone: bool) -> list[tuple[Any, Any]]:
    coordinates = _listed(_as_tuple(value, name))
    if alone and isinstance(name, sympy.Tuple) and len(coordinates) == len(name.args):
        return list(zip(name.args, coordinates, strict=True))
    return [(name, value)]


def _same_named(answer: Any, gold: Any) -> bool | None:
    """Compare values with names; ``None`` if the names do not decide."""
    left, right = _named(answer), _named(gold)
    if left is not None and right is not None:
        if _in_any_order(left, right, _same_pair):
            return True
        (name, value), (other_name, _) = left[0], right[0]
        alone = len(left) == len(right) == 1 and name == other_name
        return False if alone and not value.has(name) else None
    named, other = (left, gold) if left is not None else (right, answer)
    if named is None or len(named) == 1 or isinstance(other, Relational | Chain):
        return None
    names = [name for name, _ in named]
    values = [value for _, value in named]
    other = _as_tuple(other, sympy.Tuple(*values))
    others = _listed(other)
    if len(set(names)) == 1 or (left is not None and _is_list(other)):
        return _in_any_order(values, others, same)
    if len(set(names)) != len(names) or not _in_order(names) or len(values) != len(others):
        return False
    return all(same(one, two) for one, two in zip(values, others, strict=True))


def _same_pair(one: tuple[Any, Any], other: tuple[Any, Any]) -> bool:
    return bool(one[0] == other[0]) and same(one[1], other[1])


def _in_order(names: list[Any]) -> bool:
    """Decide whether names stand as in a tuple; only neighbours in the alphabet have an order."""
    letters = [str(name) for name in names]
    if any(len(letter) > 1 for letter in letters):
        return True
    places = sorted(map(ord, letters))
    neighbours = places == list(range(places[0], places[0] + len(places)))
    return not neighbours or letters == sorted(letters)


def _same_regions(answer: Any, gold: Any) -> bool | None:
    """Compare relations and sets as claims on one real unknown; ``None`` if one claims nothing."""
    left, right = _region(answer), _region(gold)
    if left is None or right is None:
        return None
    (name, one), (other, two) = left, right
    if name is not None and other is not None and name != other:
        return False
    return _same_sets(one, two)


def _region(value: Any) -> tuple[Any, Any] | None:
    if isinstance(value, sympy.Set) and not _is_list(value):
        return None, value
    if isinstance(value, sympy.Eq):
        name, region = value.args
        inside = isinstance(region, sympy.Set) and not _is_list(region) and name.is_Symbol
        return (name, region) if inside else None
    parts = elements(value) if _is_list(value) or isinstance(value, Chain) else [value]
    if is_equation(value) or not any(isinstance(part, Relational | Chain) for part in parts):
        return None
    if all(is_equation(part) for part in parts):
        return None
    region = as_set(value)
    return None if region is None else (next(iter(value.free_symbols)), region)


def _alone(value: Any) -> Any:
    """Return the only element of a set of one, also if it is said twice (3/4 or 75 %).

    A set that holds only a set is another set. A list with one number twice (``5, 5``, which may
    be 5.5) is no number.
    """
    if not _is_list(value) or not value.args or _repeats_a_number(value):
        return value
    exactly = {exact(part) if isinstance(part, sympy.Basic) else part for part in value.args}
    inner = isinstance(value.args[0], sympy.FiniteSet | type(sympy.S.EmptySet))
    return value.args[0] if len(exactly) == 1 and not inner else value


def _repeats_a_number(value: Any) -> bool:
    parts = elements(value)
    if len(parts) < 2 or isinstance(value, BracedSet):
        return False
    if not all(isinstance(part, sympy.Expr) and not part.free_symbols for part in parts):
        return False
    plain = all(isinstance(part, sympy.Integer | sympy.Float) for part in parts)
    return plain or len(set(parts)) < len(parts)


def _listed(value: Any) -> list[Any]:
    return elements(value) if isinstance(value, sympy.FiniteSet | sympy.Tuple) else []


def _as_tuple(value: Any, other: Any) -> Any:
    """Return an open interval as the pair that it is also written as, beside a list."""
    is_pair = isinstance(value, sympy.Interval) and value.left_open and value.right_open
    if is_pair and isinstance(other, sympy.FiniteSet | sympy.Tuple):
        return sympy.Tuple(value.start, value.end)
    return value


def _same_list(answer: Any, gold: Any) -> bool:
    left, right = _listed(answer), _listed(gold)
    if len(left) != len(right):
        return False
    if isinstance(answer, sympy.Tuple) != isinstance(gold, sympy.Tuple) and (
        isinstance(answer, BracedSet) or isinstance(gold, BracedSet)
    ):
        return False
    if isinstance(gold, sympy.Tuple):
        return all(_same_element(one, other) for one, other in zip(left, right, strict=True))
    return _in_any_order(left, right, _same_element)


def _same_element(one: Any, other: Any) -> bool:
    return _is_list(one) == _is_list(other) and same(one, other)


def _in_any_order(left: list[Any], right: list[Any], equal: Callable[[Any, Any], bool]) -> bool:
    """Decide whether each value of one list has an equal of its own in the other."""
    right = list(right)
    for one in left:
        index = next((at for at, other in enumerate(right) if equal(one, other)), None)
        if index is None:
            return False
        del right[index]
    return not right


def _same_sets(answer: Any, gold: Any) -> bool:
    left, right = (
        list(value.args) if isinstance(value, sympy.Union) else [value] for value in (answer, gold)
    )
    return _in_any_order(left, right, _same_set)


def _same_set(answer: Any, gold: Any) -> bool:
    if isinstance(answer, sympy.Interval) and isinstance(gold, sympy.Interval):
        return (
            (answer.left_open, answer.right_open) == (gold.left_open, gold.right_open)
            and same(answer.start, gold.start)
            and same(answer.end, gold.end)
        )
    if _is_list(answer) and _is_list(gold):
        return _in_any_order(elements(answer), elements(gold), same)
    return bool(answer == gold)


def _same_matrix(answer: Any, gold: Any) -> bool:
    if not isinstance(answer, sympy.MatrixBase) or not isinstance(gold, sympy.MatrixBase):
        return False
    return answer.shape == gold.shape and all(
        same(one, other) for one, other in zip(answer.flat(), gold.flat(), strict=True)
    )


def _same_relation(answer: Any, gold: Any) -> bool:
    """Compare two relations; those without solutions are equal only in the same words."""
    if isinstance(answer, Chain) or isinstance(gold, Chain):
        if not is_equation(answer) or not is_equation(gold):
            return _same_chain(answer, gold)
        sides, others = _distinct_sides(answer), _distinct_sides(gold)
        if len(sides) != 2 or len(others) != 2:
            return _in_any_order(sides, others, same)
        answer, gold = (sympy.Eq(*pair, evaluate=False) for pair in (sides, others))
    if not answer.free_symbols or not gold.free_symbols:
        return same(answer.lhs, gold.lhs) and same(answer.rhs, gold.rhs)
    if answer.free_symbols != gold.free_symbols:
        return False
    if type(answer) is not type(gold):
        if _FLIPPED.get(type(answer)) is not type(gold):
            return False
        answer = answer.reversed
    if same(answer.lhs, gold.lhs) and same(answer.rhs, gold.rhs):
        return True
    return _same_zeros(answer, gold)


def _same_chain(answer: Any, gold: Any) -> bool:
    """Compare ``a < b < c`` part by part, also if it is written ``c > b > a``."""
    chains = []
    for chain in (answer, gold):
        parts = list(chain.args) if isinstance(chain, Chain) else [chain]
        falls = all(isinstance(part, sympy.Gt | sympy.Ge) for part in parts)
        chains.append([part.reversed for part in reversed(parts)] if falls else parts)
    left, right = chains
    return len(left) == len(right) and all(map(_same_relation, left, right))


def _same_zeros(answer: Relational, gold: Relational) -> bool:
    """Decide whether one side less the other is the same in both, but for a constant factor."""
    sides = [side for value in (answer, gold) for side in value.args]
    if any(not isinstance(side, sympy.Expr) or side.is_Matrix for side in sides):
        return False
    equation = isinstance(gold, sympy.Eq | sympy.Ne)
    tops = [exact(value.lhs - value.rhs) for value in (answer, gold)]
    if equation:
        tops = [sympy.fraction(sympy.together(top))[0] for top in tops]
    ratios = []
    for at in points(gold.free_symbols):
        one, other = (number_at(top.subs(at), DIGITS) for top in tops)
        if one is not None and other is not None and other != 0:
            ratios.append(number_at(one / other, DIGITS))
    if len(ratios) >= 2:
        first = ratios[0]
        if all(abs(ratio - first) <= SAME_RATIO * abs(first) for ratio in ratios):
            return first != 0 and (equation or bool(first.is_real and first > 0))
        if equation and all(top.is_polynomial() for top in tops):
            return False
    return equation and _same_solutions(*tops)


def _same_solutions(top: Any, other: Any) -> bool:
    """Decide whether sympy finds the same zeros of two expressions in one unknown, and any."""
    if len(other.free_symbols) != 1:
        return False
    with contextlib.suppress(NotImplementedError, TypeError, ValueError, AttributeError):
        found, wanted = (sympy.solve(one, dict=False) for one in (top, other))
        return bool(wanted) and _in_any_order(found, wanted, same)
    return False


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
        if gold.has(sympy.Float) and _is_irrational(one):
            return other.is_Rational and _rounds(other, one)
        return _same_constants(one, other, decimal)
    agreed = 0
    for at in points(symbols):
        left, right = (number_at(value.subs(at), DIGITS) for value in (one, other))
        if left is None or right is None:
            continue
        scale = max(abs(left), abs(right))
        if abs(left - right) > DIFFERENT * scale or _differ(one.subs(at), other.subs(at)):
            return False
        agreed += bool(abs(left - right) <= EQUAL * scale)
    return agreed >= 3 or by_math_verify(one, other)


def _is_irrational(value: Any) -> bool:
    return value.is_finite is not False and not value.doit().is_Rational


def _differ(one: Any, other: Any) -> bool:
    """Decide whether two numbers that agree in their first digits differ later.

    Sixty digits decide, where sympy finds that many: its integrals and sums have fewer.
    """
    if one.has(sympy.Integral, sympy.Sum, sympy.Product, sympy.Limit):
        return False
    if other.has(sympy.Integral, sympy.Sum, sympy.Product, sympy.Limit):
        return False
    left, right = number_at(one, MORE_DIGITS), number_at(other, MORE_DIGITS)
    if left is None or right is None:
        return False
    return bool(abs(left - right) > MUST_BE_EQUAL * max(abs(left), abs(right)))


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
    if _differ(one, other):
        return False
    return bool(abs(left - right) <= EQUAL * scale or by_math_verify(one, other))


def _rounds(one: Any, other: Any) -> bool:
    """Decide whether one number is a decimal of the other, which has no finite one, to six places.

    It may be rounded or cut off at its last place: ``0.666667`` and ``0.6666666`` for 2/3.
    """
    short, long = sorted((one, other), key=_num_digits)
    if _num_digits(short) < 6 or _num_digits(long) <= _num_digits(short):
        return False
    if long.is_Rational and (long * 10**6).is_Integer:
        return False
    near = number_at(long, DIGITS)
    if near is None or not near.is_real:
        return False
    places = _num_places(short)
    apart = abs(number_at(short - long, DIGITS)) * sympy.Integer(10) ** places
    cut_off = places > 6 and abs(short) < abs(near)
    exponent = int(sympy.floor(sympy.log(abs(near), 10)))
    enough = places >= max(6, 5 - exponent)
    return bool(enough and (apart <= sympy.Rational(1, 2) or (cut_off and apart < 1)))


def _num_places(value: Any) -> int:
    """Return how many places a decimal has."""
    places = 0
    while not (value * 10**places).is_Integer:
        places += 1
    return places


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
