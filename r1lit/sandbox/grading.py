"""Graders of programs: by functional tests, and by standard input and output.

Functional tests are asserts in one sandbox, about functions that run in another. Tests by output
run a program once per test.
"""

from __future__ import annotations

import json
import math
import re
import socket
import time
from collections.abc import Mapping, Sequence
from decimal import MAX_EMAX, MIN_EMIN, Decimal, localcontext
from typing import Any

from r1lit.sandbox.base import Limits, Outcome, Program, Sandbox, SandboxError, to_bytes
from r1lit.sandbox.local import START_SECONDS, Container, LocalSandbox, libraries, packages
from r1lit.sandbox.run_tests import MAX_REASON, STATUSES, free_names

TESTER_BYTES = 4 << 30
_SPARE_S = 0.5


def grade_functions(
    sandbox: LocalSandbox, request: Mapping[str, Any], limits: Limits
) -> dict[str, Any]:
    """Decide about one program: status, value and reason.

    ``request`` holds ``files`` (name to source, loaded in turn into one module), ``given`` (code of
    the data set's that the tests may use), ``tests`` (a list of sources, run in order) and, for
    HumanEval, ``check``: the name of the function to be handed to the tests' ``check``. Given code
    that uses the program's own names, such as MBPP's ``root = Node(1)``, can only run where the
    program does: it is loaded after it.
    """
    files, given = dict(request["files"]), request["given"]
    try:
        about_program = bool(free_names([given]))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return _verdict("error", f"the tests fail by themselves: {error!r}")
    if about_program:
        files["given.py"], given = given, ""
    tests = json.dumps({**request, "files": [], "given": given}).encode()
    tester_limits = Limits(
        wall_s=limits.wall_s,
        cpu_s=limits.wall_s + 1,
        memory_bytes=max(TESTER_BYTES, limits.memory_bytes),
        scratch_bytes=limits.scratch_bytes + len(tests),
        output_bytes=1 << 16,
    )
    ours, theirs = socket.socketpair()
    with (
        ours,
        theirs,
        sandbox.open(
            tester_limits.scratch_bytes, channel=ours, packages=packages(), wait=False
        ) as tester,
        sandbox.open(
            limits.scratch_bytes, channel=theirs, packages=libraries(files.values())
        ) as container,
    ):
        tester.ready()
        ours.close()
        theirs.close()
        for name, source in files.items():
            container.put(name, source)
        tester.put("tests.json", tests)
        container.start({"mode": "calls", "files": list(files)}, limits)
        tester.start({"mode": "tests", "files": ["tests.json"]}, tester_limits)
        outcome = tester.outcome(limits.wall_s + START_SECONDS)
        if outcome.timed_out:
            return _verdict("timeout", f"no decision in {limits.wall_s:g} s")
        tester.stop()
        status, reason = _decision(outcome)
        if status == "ended":
            return _verdict_of_exit(container, reason, limits)
    return {"status": status, "value": float(status == "right"), "reason": reason[:MAX_REASON]}


def _decision(outcome: Outcome) -> tuple[str, str]:
    """Return status and reason from what the tests' process wrote, which is not to be trusted."""
    try:
        content = json.loads(outcome.stdout) if outcome.ok else None
    except (ValueError, RecursionError):
        content = None
    if isinstance(content, dict) and content.get("status") in STATUSES:
        return content["status"], str(content.get("reason", ""))
    return "error", f"the process with the tests gave no decision: {describe_exit(outcome)}"


def _verdict(status: str, reason: str) -> dict[str, Any]:
    return {"status": status, "value": 0.0, "reason": reason[:MAX_REASON]}


def _verdict_of_exit(container: Container, reason: str, limits: Limits) -> dict[str, Any]:
    outcome = container.outcome(limits.wall_s + _SPARE_S)
    if outcome.timed_out:
        return _verdict("timeout", f"the program ran out of {outcome.limit}")
    return _verdict("wrong", f"{reason}: {describe_exit(outcome)}")


def describe_exit(outcome: Outcome) -> str:
    """Say in words how a run ended."""
    if outcome.limit:
        return f"stopped at its limit of {outcome.limit}"
    last = outcome.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
    how = f"signal {outcome.signal}" if outcome.signal else f"exit code {outcome.exit_code}"
    return f"{how}, {last[:200]}" if last else how


MOST_APART = 0.1
FLOAT_ERROR = 1e-14
_WHOLE = re.compile(r"[-+]?[0-9]+", re.ASCII)
_DECIMAL = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,4})?", re.ASCII)


def grade_output(sandbox: Sandbox, request: Mapping[str, Any], limits: Limits) -> dict[str, Any]:
    """Decide about one program: status, value and reason.

    ``request`` holds ``language``, ``code``, ``inputs``, ``outputs``, ``tolerance``, ``total_s``
    (seconds for all tests together), ``checker`` (see ``refused``; empty for none) and ``partial``:
    whether ``value`` is the fraction of tests passed, or 1 for all and 0 for fewer.
    """
    language = request["language"]
    if language not in sandbox.languages:
        reason = f"no compiler for {language} here; there is {', '.join(sandbox.languages)}"
        return {"status": "error", "value": 0.0, "reason": reason}
    program = program_of(language, request["code"])
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
            if request.get("checker"):
                files = (stdins[tried - 1], expected, outcome.stdout)
                why = refused(sandbox, request["checker"], files, limits)
            else:
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


_CHECKED = ("input.txt", "correct_output.txt", "solution_output.txt")
_RUN_CHECKER = """
import sys
sys.argv = ["checker.py", *("/program/" + name for name in {names})]
with open("/program/checker.py") as file:
    exec(compile(file.read(), "checker.py", "exec"), {{"__name__": "__main__"}})
"""


def refused(sandbox: Sandbox, checker: str, files: Sequence[bytes], limits: Limits) -> str:
    """Say that a checker refuses an output; empty when it accepts it.

    It is run on the names of three files: the test's input, its expected output and the program's.
    It accepts by printing a number of at least 1, or nothing with exit code 0, as those of
    open-r1/codeforces do.

    Raises:
        SandboxError: if the checker fails itself, which is no fault of the program.
    """
    texts = dict(zip(_CHECKED, map(_text, files), strict=True))
    sources = {"main.py": _RUN_CHECKER.format(names=_CHECKED), "checker.py": checker}
    outcome = sandbox.run(Program(language="python", files={**sources, **texts}), limits=limits)
    words = _text(outcome.stdout).split()
    if words and _DECIMAL.fullmatch(words[0]):
        return "" if float(words[0]) >= 1 else f"the checker refuses it: {' '.join(words)[:80]}"
    if outcome.ok and not words:
        return ""
    if outcome.exit_code and "Traceback" not in _text(outcome.stderr):
        return f"the checker refuses it: {describe_exit(outcome)}"
    raise SandboxError(f"the checker gave no decision: {describe_exit(outcome)}")


def _text(content: bytes) -> str:
    """Return bytes as text; two are equal as texts only if they are as bytes."""
    return content.decode("utf-8", "surrogateescape")


_FILES = {
    "python": "main.py", "c++": "main.cpp", "java": "Main.java", "javascript": "main.js",
    "bash": "main.sh", "typescript": "main.ts", "php": "main.php",
}  # fmt: skip


def program_of(language: str, code: str) -> Program:
    """Return a program of one file, under the name that its language expects."""
    return Program(language=language, files={_FILES[language]: code})


def language_of(code: str) -> str:
    """Return c++ for code that includes a header, else python."""
    return "c++" if "#include" in code else "python"


def difference(output: str, expected: str, tolerance: float) -> str:
    r"""Say where an output differs from the expected one; empty when it does not.

    Tokens between white space are compared. Where a decimal fraction is expected, any number within
    ``tolerance``, absolute or relative, is equal to it. Of a number without exponent the relative
    one is at most a tenth, or what floats cannot tell apart: 1000000.9 is not 1000000.0.

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
    relative = tolerance * abs(gold)
    if "e" not in want.lower():
        relative = min(relative, max(MOST_APART, FLOAT_ERROR * abs(gold)))
    return abs(value - gold) <= max(tolerance, relative)


def _close_decimals(value: Decimal, gold: Decimal, tolerance: float) -> bool:
    with localcontext(prec=50, Emax=MAX_EMAX, Emin=MIN_EMIN):
        return abs(value - gold) <= Decimal(tolerance) * abs(gold)
