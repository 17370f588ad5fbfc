"""Are two values equal? Numbers, sets, lists, intervals, matrices and relations.

Only the worker process imports this file. Nothing here has a limit of time: the pool has.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import sympy
from latex2sympy2_extended.latex2sympy2 import is_expr_of_only_symbols
from latex2sympy2_extended.logic import And
from sympy.core.relational import Relational

from r1lit.verifiers.math_numbers import (
    DIFFERENT,
    DIGITS,
    by_math_verify,
    exact,
    number_at,
    points,
    same_expression,
)
from r1lit.verifiers.math_reading import as_set, elements

_FLIPPED = {
    sympy.Gt: sympy.Lt, sympy.Ge: sympy.Le, sympy.Lt: sympy.Gt, sympy.Le: sympy.Ge,
}  # fmt: skip


def same(answer: Any, gold: Any) -> bool:
    """Decide whether two values are equal.

    ``x = 5`` is 5, and of a chain of equations the last side counts. Sets and lists are compared in
    any order, tuples in order, relations by what they say of their unknowns. A decimal is equal to
    an exact number that it rounds to six digits (``0.333333`` and 1/3), never to one that can be
    written shorter.
    """
    if _is_equation(answer) and not _is_equation(gold) and not isinstance(gold, Relational | And):
        answer = _last(answer).rhs
    elif _is_assignment(gold) and not isinstance(answer, Relational | And):
        gold = _last(gold).rhs
    answer, gold = _alone(answer), _alone(gold)
    if isinstance(answer, sympy.MatrixBase) or isinstance(gold, sympy.MatrixBase):
        return _same_matrix(answer, gold)
    if answer == gold:
        return True
    sets = [isinstance(value, sympy.Interval | sympy.Union) for value in (answer, gold)]
    if any(sets) and not all(sets):
        others = _listed(gold if sets[0] else answer)
        if not others or all(isinstance(value, Relational | And) for value in others):
            answer, gold = as_set(answer), as_set(gold)
            return answer is not None and gold is not None and _same_sets(answer, gold)
        answer, gold = _as_tuple(answer), _as_tuple(gold)
    elif all(sets):
        return _same_sets(answer, gold)
    if isinstance(answer, Relational | And) and isinstance(gold, Relational | And):
        return _same_relation(answer, gold)
    if _listed(answer) or _listed(gold):
        return _same_list(answer, gold)
    if isinstance(answer, sympy.Expr) and isinstance(gold, sympy.Expr):
        return same_expression(answer, gold)
    return by_math_verify(answer, gold)


def says_false(value: Any) -> bool:
    """Decide whether a value says that two things are equal which are not: 6 = 5, x + 2 = x + 1.

    An equation that only holds for some of its unknowns (``a + b = 5``) is not false.
    """
    if isinstance(value, sympy.FiniteSet | And):
        return any(says_false(part) for part in elements(value))
    if not isinstance(value, sympy.Eq) or is_expr_of_only_symbols(value.lhs):
        return False
    left, right = value.args
    if not isinstance(left, sympy.Expr) or not isinstance(right, sympy.Expr):
        return bool(left != right and not value.free_symbols)
    symbols = left.free_symbols
    if symbols != right.free_symbols:
        return False
    for at in points(symbols) if symbols else [{}]:
        one, other = (number_at(exact(side).subs(at), 15) for side in (left, right))
        apart = DIFFERENT if symbols else sympy.Rational(1, 50)  # 1/3 = 0.33 is no lie
        if one is None or other is None or abs(one - other) <= apart * max(abs(one), abs(other)):
            return False
    return True


def _is_equation(value: Any) -> bool:
    return isinstance(value, sympy.Eq) or (
        isinstance(value, And) and all(isinstance(part, sympy.Eq) for part in elements(value))
    )


def _is_assignment(value: Any) -> bool:
    if not _is_equation(value):
        return False
    left = (elements(value)[0] if isinstance(value, And) else value).lhs
    return is_expr_of_only_symbols(left) or not value.free_symbols


def _last(value: Any) -> Any:
    return elements(value)[-1] if isinstance(value, And) else value


def _alone(value: Any) -> Any:
    """Return the only element of a set of one, also if it is said twice (3/4 or 75 %)."""
    if not isinstance(value, sympy.FiniteSet) or not value.args:
        return value
    exactly = {exact(part) if isinstance(part, sympy.Expr) else part for part in value.args}
    return value.args[0] if len(exactly) == 1 else value


def _listed(value: Any) -> list[Any]:
    return elements(value) if isinstance(value, sympy.FiniteSet | sympy.Tuple) else []


def _as_tuple(value: Any) -> Any:
    """Return an open interval as the pair that it is also written as."""
    if isinstance(value, sympy.Interval) and value.left_open and value.right_open:
        return sympy.Tuple(value.start, value.end)
    return value


def _same_list(answer: Any, gold: Any) -> bool:
    left, right = _listed(answer), _listed(gold)
    if len(left) != len(right):
        return False
    if isinstance(gold, sympy.Tuple) or (isinstance(answer, sympy.Tuple) and not gold.args):
        return all(same(one, other) for one, other in zip(left, right, strict=True))
    return _in_any_order(left, right, same)


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
        list(value.args) if isinstance(value, sympy.Union) else [value]
        for value in (_joined(answer), _joined(gold))
    )
    return _in_any_order(left, right, _same_set)


def _joined(value: Any) -> Any:
    """Return a union whose parts do not touch."""
    with contextlib.suppress(TypeError, NotImplementedError):
        return sympy.Union(*value.args) if isinstance(value, sympy.Union) else value
    return value


def _same_set(answer: Any, gold: Any) -> bool:
    if isinstance(answer, sympy.Interval) and isinstance(gold, sympy.Interval):
        return (
            (answer.left_open, answer.right_open) == (gold.left_open, gold.right_open)
            and same(answer.start, gold.start)
            and same(answer.end, gold.end)
        )
    return type(answer) is type(gold) and same(answer, gold)


def _same_matrix(answer: Any, gold: Any) -> bool:
    if not isinstance(answer, sympy.MatrixBase) or not isinstance(gold, sympy.MatrixBase):
        return False
    return answer.shape == gold.shape and all(
        same(one, other) for one, other in zip(answer.flat(), gold.flat(), strict=True)
    )


def _same_relation(answer: Any, gold: Any) -> bool:
    """Compare what two relations say. Only those that have solutions can say it in other words."""
    if isinstance(answer, And) or isinstance(gold, And):
        if _is_equation(answer) and _is_equation(gold):
            return _same_relation(_shortened(answer), _shortened(gold))
        if isinstance(answer, And) and isinstance(gold, And):
            left, right = _one_way(answer), _one_way(gold)
            if len(left) == len(right) and all(map(_same_relation, left, right)):
                return True
        answer_set, gold_set = as_set(answer), as_set(gold)
        if answer_set is None or gold_set is None or answer.free_symbols != gold.free_symbols:
            return False
        return _same_sets(answer_set, gold_set)
    if not answer.free_symbols or not gold.free_symbols:
        return same(answer.lhs, gold.lhs) and same(answer.rhs, gold.rhs)
    if answer.free_symbols != gold.free_symbols:
        return False
    if type(answer) is not type(gold):
        if _FLIPPED.get(type(answer)) is not type(gold):
            return False
        answer = answer.reversed
    if type(answer) is not type(gold):
        return False
    if same(answer.lhs, gold.lhs) and same(answer.rhs, gold.rhs):
        return True
    return _same_zeros(answer, gold)


def _shortened(value: Any) -> Any:
    """Return ``a = c`` of ``a = b = c``."""
    if not isinstance(value, And):
        return value
    return sympy.Eq(elements(value)[0].lhs, elements(value)[-1].rhs, evaluate=False)


def _one_way(chain: And) -> list[Any]:
    """Return the parts of ``a < b < c``, also if it is written ``c > b > a``."""
    parts = elements(chain)
    if all(isinstance(part, sympy.Gt | sympy.Ge) for part in parts):
        return [part.reversed for part in reversed(parts)]
    return parts


def _same_zeros(answer: Relational, gold: Relational) -> bool:
    """Decide whether one side less the other is the same in both, but for a constant factor."""
    if not all(isinstance(side, sympy.Expr) for value in (answer, gold) for side in value.args):
        return False
    equation = isinstance(gold, sympy.Eq | sympy.Ne)
    tops = [value.lhs - value.rhs for value in (answer, gold)]
    if equation:
        tops = [sympy.fraction(sympy.together(top))[0] for top in tops]
    ratios = []
    for at in points(gold.free_symbols):
        one, other = (number_at(top.subs(at), DIGITS) for top in tops)
        if one is not None and other is not None and other != 0:
            ratios.append(one / other)
    if len(ratios) < 2:
        return equation and _solves(gold) and by_math_verify(answer, gold)
    first = ratios[0]
    if all(abs(ratio - first) <= DIFFERENT * abs(first) for ratio in ratios):
        return first != 0 and (equation or bool(first.is_real and first > 0))
    if equation and all(top.is_polynomial() for top in tops):
        return False
    sets = [as_set(value) for value in (answer, gold)]
    if not equation:
        return None not in sets and _same_sets(*sets)
    return _solves(gold) and by_math_verify(answer, gold)


def _solves(equation: Any) -> bool:
    """Decide whether sympy finds a solution; to math-verify all equations without are equal."""
    try:
        return bool(sympy.solve(equation))
    except NotImplementedError:
        return False
