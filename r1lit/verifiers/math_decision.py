r"""The decision about one mathematical answer, and the name under which it votes.

Only the worker process imports this file, because its libraries take a second to load.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import Any

import sympy
from latex2sympy2_extended.sets import FiniteSet

from r1lit.verifiers.math_equality import same, says_false
from r1lit.verifiers.math_numbers import exact
from r1lit.verifiers.math_reading import readings

MAX_EXPANDED_POWER = 10
MAX_VOTE = 200
_BASE = re.compile(r"^-?[0-9A-Za-z,.\s]+_\{?\s*(\d+)\s*\}?$")
_WORD = re.compile(r"^(?:\\(?:text|mbox|mathrm|textbf)\{)?\(?([A-Za-z]{3,}|[A-Z])\)?\}?$")
_LOOKS = re.compile(r"\\(?:left|right)(?![A-Za-z])|\\[!,;]")
_SPACES = re.compile(r"(?<![0-9])\s+|\s+(?![0-9])")
_UNDEFINED = re.compile(r"\b(?:zoo|nan)\b")


def plain(text: str) -> str:
    r"""Drop from LaTeX what changes only its looks: spaces, ``\left``, the d of ``\dfrac``."""
    return _SPACES.sub("", _LOOKS.sub("", text)).replace("\\dfrac", "\\frac")


@lru_cache(maxsize=4096)
def decide(answer: str, gold: str) -> dict[str, str | None]:
    """Compare one answer with the gold answer: status, canonical and reason.

    They are equal when their LaTeX is, but for its looks, or when their values are. A text that can
    be read in two ways is right if one of them is. A value without a number (1/0, and the time
    4:00) equals none, nor does a number in another base (``52_8``, ``52_9``).
    """
    values, vote = named(answer)
    if plain(answer) == plain(gold):
        return {"status": "right", "canonical": _short(vote or plain(answer)), "reason": ""}
    if vote is None:
        return {"status": "unparsed", "canonical": None, "reason": f"cannot read {answer[:60]!r}"}
    if values and says_false(values[0]):
        reason = f"{answer[:60]!r} is a false equation"
        return {"status": "unparsed", "canonical": None, "reason": reason}
    gold_values, _ = named(gold)
    if (
        gold_values
        and not _other_base(answer, gold)
        and any(same(value, gold_values[0]) for value in values)
    ):
        return {"status": "right", "canonical": _short(vote), "reason": ""}
    reason = f"{answer[:60]!r} is not {gold[:60]!r}"
    return {"status": "wrong", "canonical": _short(vote), "reason": reason}


@lru_cache(maxsize=4096)  # a group's responses share their gold answer, and often their answer
def named(text: str) -> tuple[tuple[Any, ...], str | None]:
    """Return what a text can be read as and the name of the first, or an empty tuple and ``None``.

    A value that is no number (1/0) votes with its own text only, and has no readings.
    """
    values = readings(text)
    if not values:
        return (), None
    vote = canonical(values[0], text)
    return ((), plain(text)) if _UNDEFINED.search(vote) else (values, vote)


def _other_base(answer: str, gold: str) -> bool:
    bases = {match.group(1) for text in (answer, gold) if (match := _BASE.match(text.strip()))}
    return len(bases) == 2


def _short(vote: str) -> str:
    if len(vote) <= MAX_VOTE:
        return vote
    return vote[:MAX_VOTE] + "… sha256 " + hashlib.sha256(vote.encode()).hexdigest()


def canonical(value: Any, text: str = "") -> str:
    r"""Name a value so that equal answers vote together: ``1/2``, ``0.5``, ``\frac{1}{2}``.

    Rationals are exact, other numbers have ten digits, polynomials are expanded, words and choice
    letters are lower-case. ``x = 5`` and a set of 5 alone vote with ``5``.
    """
    word = _WORD.match(text.strip())
    if word and (value == sympy.E or isinstance(value, sympy.Symbol | sympy.Mul)):
        return word.group(1).lower()
    if isinstance(value, sympy.Eq) and value.lhs.is_Symbol:
        return canonical(value.rhs)
    if isinstance(value, sympy.FiniteSet | FiniteSet):
        votes = sorted(canonical(v) for v in value.args)
        return votes[0] if len(votes) == 1 else "{" + ", ".join(votes) + "}"
    if isinstance(value, sympy.Union):
        return " U ".join(sorted(canonical(v) for v in value.args))
    if isinstance(value, sympy.Interval):
        left, right = "(" if value.left_open else "[", ")" if value.right_open else "]"
        return f"{left}{canonical(value.start)}, {canonical(value.end)}{right}"
    if isinstance(value, sympy.Tuple):
        return "(" + ", ".join(canonical(v) for v in value) + ")"
    if isinstance(value, sympy.MatrixBase):
        rows = [[canonical(v) for v in row] for row in value.tolist()]
        return "; ".join(", ".join(row) for row in rows)
    if isinstance(value, sympy.Expr):
        return _canonical_expression(exact(value).doit())
    return str(value)


def _canonical_expression(value: Any) -> str:
    if value.is_Rational or value.is_infinite:
        return str(value)
    if not value.free_symbols:
        number = sympy.N(value, 15, chop=True)
        if number.is_real and abs(number) < 1e300:
            return f"{float(number):.10g}"
        return str(sympy.N(number, 10))
    powers = [p.exp for p in value.atoms(sympy.Pow) if not p.base.is_Symbol]
    if all(p.is_number and abs(p) <= MAX_EXPANDED_POWER for p in powers):
        value = sympy.expand(value)
    return str(value)
