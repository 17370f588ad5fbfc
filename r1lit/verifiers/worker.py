r"""The math worker: a process that compares answers with math-verify until its pipe closes.

It is run as a file and imports nothing of the package (see ``serving``). Each
``{"answer": …, "gold": …}`` is answered with ``{"status": …, "canonical": …, "reason": …}``.
math-verify's own time limits are off: the pool has better ones.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import re
import runpy
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

MAX_EXPANDED_POWER = 10
MAX_VOTE = 200
_BASE = re.compile(r"^-?[0-9A-Za-z,.\s]+_\{?\s*(\d+)\s*\}?$")
_WORD = re.compile(r"^(?:\\(?:text|mbox|mathrm|textbf)\{)?\(?([A-Za-z]{3,}|[A-Z])\)?\}?$")
_FRACTION = re.compile(r"^-?\d+(?:/\d+)?$")
_ROUNDED = re.compile(r"[.%]|[Pp]ercent|[Pp]ct")
_OPERATION = re.compile(r"\s*([-+*/=])\s*")
_LOOKS = re.compile(r"\\(?:left|right)(?![A-Za-z])|\\[!,;]")
_ROWS = re.compile(r"^\[\s*\[[^\[\]]*\](?:\s*,\s*\[[^\[\]]*\])*\s*\]$")
_ROW = re.compile(r"\[([^\[\]]*)\]")
_SPACES = re.compile(r"(?<![0-9])\s+|\s+(?![0-9])")
_UNDEFINED = re.compile(r"\b(?:zoo|nan)\b")
_PI = re.compile(r"(?<![\\A-Za-z])pi(?![A-Za-z])")


@lru_cache(maxsize=4096)  # a group's responses share their gold answer, and often their answer
def parse(text: str) -> Any:
    """Return the value that math-verify reads, or ``None``.

    Its normaliser takes the ``b`` in ``a + b + c`` for a unit and drops the rest; without spaces
    around the operations it does not.
    """
    import math_verify

    config = math_verify.LatexExtractionConfig(boxed_match_priority=0)
    text = _PI.sub(r"\\pi ", _OPERATION.sub(r"\1", text))
    parsed = math_verify.parse("\\boxed{" + text + "}", [config], parsing_timeout=None)
    return next((item for item in parsed if not isinstance(item, str)), None)


def plain(text: str) -> str:
    r"""Drop from LaTeX what changes only its looks: spaces, ``\left``, the d of ``\dfrac``."""
    return _SPACES.sub("", _LOOKS.sub("", text)).replace("\\dfrac", "\\frac")


@lru_cache(maxsize=4096)
def decide(answer: str, gold: str) -> dict[str, str | None]:
    """Compare one answer with the gold answer: status, canonical and reason.

    They are equal when their LaTeX is, but for its looks, or when math-verify finds their values
    equal.
    A value without a number (1/0, and to math-verify the time 4:00) equals none.
    Two things math-verify overlooks make an answer wrong here: another base (``52_8``, ``52_9``),
    and a tiny difference of exact fractions (2 / 2^98, 1 / 2^98).
    """
    import math_verify

    value = parse(_as_matrix(answer))
    if plain(answer) == plain(gold):
        vote = _vote(value, answer) if value is not None else plain(answer)
        return {"status": "right", "canonical": _short(vote), "reason": ""}
    if value is None:
        return {"status": "unparsed", "canonical": None, "reason": f"cannot read {answer[:60]!r}"}
    value, gold_value = _as_sets(value, parse(_as_matrix(gold)))
    vote = _vote(value, answer)
    if (
        gold_value is not None
        and not _UNDEFINED.search(canonical(value, answer) + " " + canonical(gold_value, gold))
        and not _other_base(answer, gold)
        and math_verify.verify(gold_value, value, timeout_seconds=None, raise_on_error=True)
        and not _other_fraction(answer, gold, vote, canonical(gold_value, gold))
    ):
        return {"status": "right", "canonical": _short(vote), "reason": ""}
    reason = f"{answer[:60]!r} is not {gold[:60]!r}"
    return {"status": "wrong", "canonical": _short(vote), "reason": reason}


def _vote(value: Any, text: str) -> str:
    """Return the name of a value; a value that is no number votes with its own text only."""
    vote = canonical(value, text)
    return plain(text) if _UNDEFINED.search(vote) else vote


def _as_matrix(text: str) -> str:
    r"""Write ``[[1, 2], [3, 4]]`` as LaTeX; any other text stays."""
    if not _ROWS.match(text):
        return text
    rows = [" & ".join(row.split(",")) for row in _ROW.findall(text)]
    return r"\begin{pmatrix} " + r" \\ ".join(rows) + r" \end{pmatrix}"


def _as_sets(value: Any, gold_value: Any) -> tuple[Any, Any]:
    """Turn an inequality in one unknown into the set it says, if the other is an interval."""
    import sympy
    from sympy.core.relational import Relational

    pair = [value, gold_value]
    for at in (0, 1):
        one, other = pair[at], pair[1 - at]
        if (
            isinstance(one, Relational | sympy.And | sympy.Or)
            and isinstance(other, sympy.Interval | sympy.Union)
            and len(one.free_symbols) == 1
        ):
            # as_set wants a real unknown and knows fewer inequalities than there are
            unknown = one.free_symbols.pop()
            with contextlib.suppress(NotImplementedError, TypeError, ValueError):
                pair[at] = one.subs(unknown, sympy.Symbol("x", real=True)).as_set()
    return pair[0], pair[1]


def _other_base(answer: str, gold: str) -> bool:
    bases = {match.group(1) for text in (answer, gold) if (match := _BASE.match(text.strip()))}
    return len(bases) == 2


def _other_fraction(answer: str, gold: str, vote: str, gold_vote: str) -> bool:
    rounded = _ROUNDED.search(answer) or _ROUNDED.search(gold)
    exact = _FRACTION.match(vote) and _FRACTION.match(gold_vote)
    return not rounded and bool(exact) and vote != gold_vote


def _short(vote: str) -> str:
    if len(vote) <= MAX_VOTE:
        return vote
    return vote[:MAX_VOTE] + "… sha256 " + hashlib.sha256(vote.encode()).hexdigest()


def canonical(value: Any, text: str = "") -> str:
    r"""Name a value so that equal answers vote together: ``1/2``, ``0.5``, ``\frac{1}{2}``.

    Rationals are exact, other numbers have ten digits, polynomials are expanded, words and choice
    letters are lower-case. ``x = 5`` and a set of 5 alone vote with ``5``.
    """
    import sympy
    from latex2sympy2_extended.sets import FiniteSet

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
        return _canonical_expression(value.doit())
    return str(value)


def _canonical_expression(value: Any) -> str:
    import sympy

    if isinstance(value, sympy.Float):
        value = sympy.Rational(str(value))
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


def start() -> None:
    """Load math-verify and compile its grammar, before the clock runs."""
    import math_verify  # noqa: F401

    # sympy prints integers of any size in its errors and reprs.
    sys.set_int_max_str_digits(0)
    logging.disable(logging.CRITICAL)
    parse("1")


if __name__ == "__main__":
    serve = runpy.run_path(str(Path(__file__).with_name("serving.py")))["serve"]
    serve(start, lambda request: decide(request["answer"], request["gold"]))
