"""Errors for the user in one line: checks of settings, and crashes in a user's own code."""

from __future__ import annotations

import difflib
import importlib
import math
import os
from collections.abc import Iterable
from typing import Any


def check_at_least(
    key: str, value: float | None, least: float, remedy: str = "", *, finite: bool = True
) -> None:
    """Check the least value of a setting; None, where it is not set, passes.

    Raises:
        ValueError: naming key, value and what would be right.
    """
    if value is not None and not value >= least:
        raise ValueError(f"{key}: {value} is not at least {least}{_after(remedy)}")
    _check_finite(key, value, finite)


def check_above(
    key: str, value: float | None, bound: float, remedy: str = "", *, finite: bool = True
) -> None:
    """Check that a setting is above a bound, as ``check_at_least`` does."""
    if value is not None and not value > bound:
        raise ValueError(f"{key}: {value} is not above {bound}{_after(remedy)}")
    _check_finite(key, value, finite)


def _check_finite(key: str, value: float | None, finite: bool) -> None:
    if finite and value is not None and math.isinf(value):
        raise ValueError(f"{key}: {value} is not a finite number")


def check_between(key: str, value: float, low: float, high: float) -> None:
    """Check that a setting is from ``low`` to ``high``; raise a ValueError likewise."""
    if not low <= value <= high:
        raise ValueError(f"{key}: {value} is not between {low} and {high}")


def check_posix(what: str) -> None:
    """Raise a ValueError where ``what`` cannot be: on Windows, outside WSL."""
    if os.name != "posix":
        raise ValueError(f"{what} needs Linux or macOS; on Windows run r1lit in WSL")


def check_one_of(key: str, value: str, known: Iterable[str]) -> None:
    """Check a setting that has a name for each of its values; raise a ValueError likewise."""
    if value not in (names := list(known)):
        raise ValueError(f"{key}: {value!r} is not one of {', '.join(names)}")


def _after(remedy: str) -> str:
    return f"; {remedy}" if remedy else ""


def message_of(error: BaseException) -> str:
    """Return an error's message, in one line where a library wrote several."""
    return " ".join(str(error).split())


def in_one_line(error: BaseException) -> str:
    """Return an error's type and the first line of its message."""
    return f"{type(error).__name__}: {error}".splitlines()[0]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean …?" with the known name closest to ``name``; "" if none is close.

    >>> did_you_mean("maths", ["math", "code"]), did_you_mean("x", ["math", "code"])
    ('; did you mean math?', '')
    """
    candidates = list(known)
    longer = [c for c in candidates if name and c.lower().startswith(name.lower())]
    close = difflib.get_close_matches(name, candidates, n=1) or longer
    return f"; did you mean {close[0]}?" if close else ""


def hint(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean …?" with the known name closest to ``name``, or the known ones.

    >>> hint("max_epoch", ["max_epochs", "min_steps"]), hint("x", ["max_epochs", "min_steps"])
    ('; did you mean max_epochs?', '; there are max_epochs, min_steps')
    """
    candidates = list(known)
    if close := did_you_mean(name, candidates):
        return close
    return f"; there are {', '.join(candidates)}" if 0 < len(candidates) <= 12 else ""


def import_path(path: str, key: str = "class_path") -> Any:
    """Return the object at a dotted path.

    Raises:
        ValueError: naming ``key`` and ``path`` if it cannot be imported.
    """
    module, _, name = path.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{key}: {path!r} cannot be imported: {error}") from error
