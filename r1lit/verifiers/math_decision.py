r"""The decision about one mathematical answer, and its canonical form for majority vote.

Only the worker process imports this file, because its libraries take a second to load.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import Any

import sympy
from latex2sympy2_extended.sets import FiniteSet

from r1lit.verifiers.math_equality import exact, same, says_false, settled
from r1lit.verifiers.math_reading import Numeral, readings

MAX_EXPANDED_POWER = 10
MAX_VOTE = 200
_WORD = re.compile(r"^(?:\\(?:text|mbox|mathrm|textbf)\{)?\(?([A-Za-z]{3,}|[A-Z])\)?\}?$")
_LOOKS = re.compile(r"\\(?:left|right)(?![A-Za-z])|\\[!,;]")
_SPACES = re.compile(r"(?<![0-9])\s+|\s+(?![0-9])")
_BRACED = re.compile(r"([\^_])\{(\\?[A-Za-z]+|\d)\}")
_MARKED = re.compile(r"(?<!\\)(?:\$\$?|\\[()\[\]])")
_TEXT = re.compile(
    r"(?<![_^{])\\(?:text(?:bf|it|rm|sf|tt|normal)?|mbox|math(?:rm|bf|it|sf))\s*\{([^{}]*)\}(?!\s*=)"
)
_FUNCTIONS = re.compile(r"^(?:lcm|gcd|max|min|mod|deg|rank|det|tr|dim|area|vol|th|st|nd|rd|cis)$")
_RUN = re.compile(r"(?<![\\A-Za-z{])[A-Za-z]{3,}(?![A-Za-z}])")
_FUNCTION_NAMES = frozenset({
    "sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh",
    "log", "exp", "sqrt", "max", "min", "gcd", "lcm", "det", "mod", "inf", "infinity", "and",
    "percent", "pct", "percentage",
})  # fmt: skip
_TIMES_ZERO = re.compile(r"(?<![\\\\A-Za-z])([A-Za-z]{2,})[\s(]*[-+]?0+(?:\.0*)?(?![\d.^])")
_ALPHABET = "abcdefghijklmnopqrstuvwxyz"
_WORDLIKE = re.compile(r"[^\W\d_]")
_JOIN = re.compile(r"^[\s,;.&]*(?:and|or)?[\s,;.]*$", re.IGNORECASE)
_NAMED_ABOUT = re.compile(r"\s*[A-Za-z]\s*(?:\\(?:approx|simeq|doteq)(?![A-Za-z])|≈)")
_UNDEFINED = re.compile(r"\b(?:zoo|nan)\b")


def plain(text: str) -> str:
    r"""Drop from LaTeX what changes only its looks: spaces, ``\left``, the d of ``\dfrac``."""
    text = _BRACED.sub(r"\1\2", _LOOKS.sub("", text))
    return _SPACES.sub("", text).replace("\\dfrac", "\\frac")


@lru_cache(maxsize=4096)
def decide(answer: str, gold: str) -> dict[str, str | None]:
    """Compare one answer with the gold answer: status, canonical and reason.

    They are equal when their LaTeX is, but for its looks, or when their values are. A text that can
    be read in two ways is right if one of them is. A value without a number (1/0, and the time
    4:00) equals none, nor does a number in another base (``52_8``, ``52_9``).
    """
    parts, gold_parts = split(answer), split(gold)
    if _has_words(parts) or _has_words(gold_parts):
        return _compare_prose(answer, gold)
    answer, gold = parts[0][1], gold_parts[0][1]
    values, vote = named(answer)
    if plain(answer) == plain(gold):
        return {"status": "right", "canonical": _short(vote or plain(answer)), "reason": ""}
    if vote is None:
        return {"status": "unparsed", "canonical": None, "reason": f"cannot read {answer[:60]!r}"}
    if values and says_false(values[0]):
        reason = f"{answer[:60]!r} is a false equation"
        return {"status": "unparsed", "canonical": None, "reason": reason}
    if _NAMED_ABOUT.match(answer) and "=" in gold and "." not in gold:
        reason = f"{answer[:60]!r} is an estimate of {gold[:60]!r}"
        return {"status": "wrong", "canonical": _short(vote), "reason": reason}
    gold_values, _ = named(gold)
    if gold_values and any(same(value, gold_values[0]) for value in values):
        return {"status": "right", "canonical": _short(vote), "reason": ""}
    reason = f"{answer[:60]!r} is not {gold[:60]!r}"
    return {"status": "wrong", "canonical": _short(vote), "reason": reason}


def _compare_prose(answer: str, gold: str) -> dict[str, str | None]:
    """Compare words letter for letter and the mathematics between them by value."""
    parts, gold_parts = split(answer), split(gold)
    vote = _short(plain(answer).casefold())
    if plain(answer).casefold() == plain(gold).casefold():
        return {"status": "right", "canonical": vote, "reason": ""}
    if not _has_words(gold_parts):
        return {"status": "unparsed", "canonical": None, "reason": f"words in {answer[:60]!r}"}
    if len(parts) == len(gold_parts) and all(
        (one == other) if is_words or were_words else decide(one, other)["status"] == "right"
        for (is_words, one), (were_words, other) in zip(parts, gold_parts, strict=True)
    ):
        return {"status": "right", "canonical": vote, "reason": ""}
    return {"status": "wrong", "canonical": vote, "reason": f"{answer[:60]!r} is not {gold[:60]!r}"}


@lru_cache(maxsize=4096)
def split(text: str) -> tuple[tuple[bool, str], ...]:
    r"""Split an answer into words (True) and mathematics (False), in order.

    Words are what stands outside of ``$…$``, or in ``\text{…}``, or two runs of three letters. The
    name of a value (``\text{Area} = 5``) and what joins a list (``$1$ and $2$``) are no words.

    >>> split("up on $(0,1)$"), split(r"x = 2 \text{ if } a > 0")
    (((True, 'up on'), (False, '(0,1)')), ((False, 'x = 2'), (True, 'if'), (False, 'a > 0')))
    >>> split("$x=1$ and $x=2$"), split("abc + 1")
    (((False, 'x=1 and x=2'),), ((False, 'abc + 1'),))
    """
    parts = _MARKED.split(text)
    if len(parts) > 1:
        if not any(_WORDLIKE.search(_JOIN.sub("", part)) for part in parts[::2]):
            return ((False, "".join(parts) or text),)
    else:
        parts = _TEXT.split(text)
        if not any(map(_says_more, parts[1::2])):
            runs = [run.lower() for run in _RUN.findall(_TEXT.sub("", text))]
            words = [run for run in runs if run not in _FUNCTION_NAMES and run not in _ALPHABET]
            return ((True, text.casefold()),) if len(words) > 1 else ((False, text),)
        parts.insert(0, "")  # mathematics comes first here
    pieces = ((not at % 2, _trimmed(part)) for at, part in enumerate(parts))
    return tuple((is_words, p.casefold() if is_words else p) for is_words, p in pieces if p)


def _trimmed(part: str) -> str:
    return " ".join(part.strip(" ,;.:").split())


def _has_words(parts: tuple[tuple[bool, str], ...]) -> bool:
    return any(is_words for is_words, _ in parts)


def _says_more(words: str) -> bool:
    words = words.strip()
    if _JOIN.match(words) or _FUNCTIONS.match(words):
        return False
    letters = re.findall(r"[^\W\d_]", words)
    return len(letters) > 1 and bool(re.search(r"[a-z\u4e00-\u9fff]", words))


@lru_cache(maxsize=4096)  # a group's responses share their gold answer, and often their answer
def named(text: str) -> tuple[tuple[Any, ...], str | None]:
    """Return a text's readings and the name of the first, or an empty tuple and ``None``.

    A value that is no number (1/0) votes with its own text only, and has no readings. A word before
    a zero (``not 0``) is none of its factors, so that the whole has no reading.
    """
    values = readings(text)
    if not values:
        return (), None
    vote = canonical(values[0], text)
    factor = _TIMES_ZERO.search(text) if vote == "0" else None
    if factor and factor[1].lower() not in {*_FUNCTION_NAMES, "ln", "lg"}:
        return (), None
    return ((), plain(text)) if _UNDEFINED.search(vote) else (values, vote)


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
    value = settled(value)
    if isinstance(value, sympy.Eq) and value.lhs.is_Symbol:
        return canonical(value.rhs)
    if isinstance(value, Numeral):
        return f"{value.args[0]}_{value.args[1]}"
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
