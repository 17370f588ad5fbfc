"""Compare packed outcomes, of which one may be any JSON that an untrusted process has written.

Nothing is turned into objects, so nothing that a program defines takes part. Work is bounded by the
expected outcome, and by the length of the text that the other was read from.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

TOLERANCE, SMALLEST = 1e-9, 1e-12
Tree = Any
"""Parsed JSON: of an outcome that is packed as in `r1lit.sandbox.packing`, or of anything."""


def same(expected: Tree, found: Tree) -> bool:
    """Return whether two outcomes are the same, where ``found`` may be any JSON.

    Types are exact: ``True``, ``1`` and ``1.0`` differ. Sets, and dictionaries as in Python, have
    no order. Fractions agree to 1e-9, for sums may be taken in another order; NaN equals NaN.

    >>> one, true = ([["t", ["returned", value]], []] for value in (["i", "0x1"], True))
    >>> same(one, one), same(one, true), same(one, 1)
    (True, False, False)
    """
    try:
        if not _alike(expected, found) or isinstance(expected[0], str):
            return _identical(expected, found)  # raised, or none
        things, others = expected[1], found[1]
        if not isinstance(others, list):
            return False
        return _Comparison(things, others).values(expected[0], found[0])
    except RecursionError:
        return False


def _alike(expected: Tree, found: Tree) -> bool:
    """Return whether both are lists of one length."""
    return isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found)


def _all(expected: Tree, found: Tree, equal: Callable[[Tree, Tree], bool]) -> bool:
    return _alike(expected, found) and all(map(equal, expected, found))


def _identical(expected: Tree, found: Tree) -> bool:
    if isinstance(expected, list):
        return _all(expected, found, _identical)
    return type(expected) is type(found) and bool(expected == found)


class _Comparison:
    """Compares trees that refer to things by number; the numbers themselves need not agree."""

    def __init__(self, things: list[Tree], others: list[Tree]) -> None:
        self.things = things
        self.others = others
        self.met: set[tuple[int, int]] = set()

    def values(self, expected: Tree, found: Tree) -> bool:
        """Compare values of `r1lit.sandbox.plain`."""
        if not isinstance(expected, list) or not _alike(expected, found):
            return _identical(expected, found)
        (tag, content), (other_tag, other) = expected, found
        if tag != other_tag:
            return False
        if tag in ("f", "c"):
            return _close(content, other)
        if tag in ("s", "z", "dk"):
            return self._without_order(content, other, self.values)
        if tag == "d":
            return self._without_order(content, other, self._pairs)
        if tag in ("l", "t", "dv", "di"):
            return _all(content, other, self.values)
        if tag in ("n", "q"):  # the last part holds values
            same_head = _alike(content, other) and _identical(content[:-1], other[:-1])
            return same_head and _all(content[-1], other[-1], self.values)
        if tag == "k":
            return _alike(content, other) and self._things(content[0], other[0])
        return _identical(expected, found)

    def _pairs(self, expected: Tree, found: Tree) -> bool:
        return _all(expected, found, self.values)

    def _without_order(
        self, expected: Tree, found: Tree, equal: Callable[[Tree, Tree], bool]
    ) -> bool:
        """Compare items of a set, or pairs of a dictionary: no key is there twice."""
        if not _alike(expected, found):
            return False
        return _all(sorted(expected, key=json.dumps), sorted(found, key=json.dumps), equal)

    def _things(self, number: int, other: Tree) -> bool:
        """Compare two things; the last part of an instance, and of an iterator, is a value."""
        if type(other) is not int or not 0 <= other < len(self.others):
            return False
        if (number, other) in self.met:  # compared already, or just now, in a circle
            return True
        self.met.add((number, other))
        expected, found = self.things[number], self.others[other]
        if expected[0] not in ("instance", "items"):
            return _identical(expected, found)
        same_head = _alike(expected, found) and _identical(expected[:-1], found[:-1])
        return same_head and self.values(expected[-1], found[-1])


def _close(expected: Tree, found: Tree) -> bool:
    """Compare fractions, or the two parts of complex ones, which are texts of `float.hex`."""
    if isinstance(expected, list):
        return _all(expected, found, _close)
    if not isinstance(found, str) or len(found) > 40:
        return False
    try:
        value, other = float.fromhex(expected), float.fromhex(found)
    except (ValueError, OverflowError):
        return False
    if math.isnan(value) or math.isnan(other):
        return math.isnan(value) and math.isnan(other)
    return math.isclose(value, other, rel_tol=TOLERANCE, abs_tol=SMALLEST)
