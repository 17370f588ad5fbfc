"""Tests by standard input and output: run a program once per test and compare its output."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from decimal import MAX_EMAX, MIN_EMIN, Decimal, localcontext
from typing import Any

from r1lit.sandbox.base import Limits, Program, Sandbox, to_bytes
from r1lit.sandbox.functional import describe_exit

MAX_REASON = 300
_WHOLE = re.compile(r"[-+]?[0-9]+", re.ASCII)
_DECIMAL = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,4})?", re.ASCII)


def grade(sandbox: Sandbox, request: Mapping[str, Any], limits: Limits) -> dict[str, Any]:
    """Decide about one program: status, value and reason.

    ``request`` holds ``language``, ``code``, ``inputs``, ``outputs``, ``tolerance``, ``total_s``
    (seconds for all tests together) and ``partial``: whether ``value`` is the fraction of tests
    passed, or 1 for all and 0 for fewer.
    """
    language = request["language"]
    if language not in sandbox.languages:
        reason = f"no compiler for {language} here; there is {', '.join(sandbox.languages)}"
        return {"status": "error", "value": 0.0, "reason": reason}
    program = Program(language=language, files={_FILES[language]: request["code"]})
    inputs, outputs = request["inputs"], request["outputs"]
    stdins = [to_bytes(text) for text in inputs]
    deadline = time.monotonic() + request["total_s"]
    passed, status, reason = 0, "right", ""
    for tried, outcome in enumerate(sandbox.runs(program, stdins, limits), start=1):
        if not outcome.compiled:
            text = outcome.stderr.decode("utf-8", "replace").strip()
            reason = f"does not compile: {text or describe_exit(outcome)}"[:MAX_REASON]
            status = "timeout" if outcome.timed_out else "wrong"
            return {"status": status, "value": 0.0, "reason": reason}
        failed, why = "", ""
        if outcome.timed_out:
            failed, why = "timeout", f"ran out of {outcome.limit}"
        elif not outcome.ok:
            failed, why = "wrong", describe_exit(outcome)
        else:
            expected = to_bytes(outputs[tried - 1])
            why = difference(_text(outcome.stdout), _text(expected), request["tolerance"])
            failed = "wrong" if why else ""
        passed += not failed
        if failed and status == "right":
            status, reason = failed, f"test {tried} of {len(inputs)}: {why}"[:MAX_REASON]
        if failed and not request["partial"]:
            break
        if tried < len(inputs) and time.monotonic() > deadline:
            status = "timeout"
            reason = f"{request['total_s']:g} s were over after test {tried} of {len(inputs)}"
            break
    fraction = passed / len(inputs)
    value = fraction if request["partial"] or status == "right" else 0.0
    return {"status": status, "value": value, "reason": reason}


def _text(content: bytes) -> str:
    """Return bytes as text; two are equal as texts only if they are as bytes."""
    return content.decode("utf-8", "surrogateescape")


_FILES = {"python": "main.py", "c++": "main.cpp"}


def difference(output: str, expected: str, tolerance: float) -> str:
    r"""Say where an output differs from the expected one; empty when it does not.

    Tokens between white space are compared. Where a decimal fraction is expected, any number within
    ``tolerance``, absolute or relative, is equal to it.

    >>> difference("1 0.33333333", "1\n0.3333333333\n", 1e-6)
    ''
    >>> difference("1 2", "1 3", 1e-6)
    "token 2 is '2', not '3'"
    """
    tokens, wanted = output.split(), expected.split()
    for place, (token, want) in enumerate(zip(tokens, wanted, strict=False), start=1):
        if token != want and not _close(token, want, tolerance):
            return f"token {place} is {token[:40]!r}, not {want[:40]!r}"
    if len(tokens) != len(wanted):
        return f"{len(tokens)} tokens, not {len(wanted)}"
    return ""


def _close(token: str, want: str, tolerance: float) -> bool:
    if _WHOLE.fullmatch(want) or not _DECIMAL.fullmatch(want) or not _DECIMAL.fullmatch(token):
        return False
    value, gold = float(token), float(want)
    if math.isinf(gold):  # beyond what a float holds: 1e400, or 310 digits
        return _close_decimals(Decimal(token), Decimal(want), tolerance)
    return abs(value - gold) <= tolerance * max(1.0, abs(gold))


def _close_decimals(value: Decimal, gold: Decimal, tolerance: float) -> bool:
    with localcontext(prec=50, Emax=MAX_EMAX, Emin=MIN_EMIN):
        return abs(value - gold) <= Decimal(tolerance) * abs(gold)
