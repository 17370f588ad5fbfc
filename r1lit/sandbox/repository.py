"""Tests of a repository, run by pytest in a sandbox, and verdicts on patches of one.

Tests run in the interpreter that imports the code under test, which can forge what they come to. So
a verdict has a second part, `r1lit.sandbox.hidden_calls`, in which that code can only return values
for arguments. Without it, a verdict by tests alone can be forged.
"""

from __future__ import annotations

import ast
import json
import secrets
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

from r1lit.sandbox.base import Limits, Outcome
from r1lit.sandbox.grading import describe_exit
from r1lit.sandbox.hidden_calls import packing_files, refused
from r1lit.sandbox.local import START_SECONDS, LocalSandbox, packages

MAX_REASON = 300
_MAIN = Path(__file__).with_name("pytest_main.py")


@dataclass(frozen=True, kw_only=True)
class SuiteReport:
    """The report of a run of tests: outcomes by test id, and the ends of failures.

    ``outcomes`` is None where the run gave no report; ``ended`` says why, in words. ``timed_out``
    is about the clock, not about CPU time. ``calls`` are those of `r1lit.sandbox.pytest_main.Calls`
    where they were wanted, ``recorded`` those of its ``Recorder``.
    """

    outcomes: Mapping[str, str] | None
    details: Mapping[str, str]
    ended: str = ""
    timed_out: bool = False
    seconds: float = 0.0
    calls: Mapping[str, Any] = field(default_factory=dict)
    recorded: Sequence[Any] = ()


def run_suite(
    sandbox: LocalSandbox,
    files: Mapping[str, str],
    tests: Sequence[str],
    limits: Limits,
    *,
    roots: Sequence[str] = ("",),
    keep: Collection[str] = (),
    details: bool = False,
    calls: bool = False,
    recorded: Sequence[Any] = (),
) -> SuiteReport:
    """Run the tests of some files of a repository.

    Args:
        sandbox: runs them.
        files: of the repository, by their paths.
        tests: the paths of test files.
        limits: of the run.
        roots: the folders that modules are imported from.
        keep: functions as ``file::Class::name`` or ``name``; others are left out. All if empty.
        details: whether the ends of failures are wanted.
        calls: whether it is wanted which test functions call which code; then tests are slower.
        recorded: path, first and last line of the code whose calls are wanted, with arguments.
    """
    key = secrets.token_hex(16)
    request = {"roots": list(roots), "files": list(tests), "keep": sorted(keep)}
    wanted = {"details": details, "calls": calls, "recorded": list(recorded), "key": key}
    wanted["tests"] = [path for path in files if is_test(path)] if recorded else []
    body = json.dumps({**request, **wanted}).encode()
    with sandbox.open(limits.scratch_bytes, packages=packages()) as container:
        container.put("main.py", _MAIN.read_text())
        for name, content in packing_files().items() if recorded else ():
            container.put(name, content)
        for path, content in files.items():
            container.put(f"repository/{path}", content)
        container.start({"mode": "main", "files": ["main.py"]}, limits, body)
        outcome = container.outcome(limits.wall_s + START_SECONDS)
    return _report(outcome, key)


def _report(outcome: Outcome, key: str) -> SuiteReport:
    try:
        content = json.loads(outcome.stdout) if outcome.ok else None
    except (ValueError, RecursionError):
        content = None
    if not _is_report(content) or content["key"] != key:
        wall = outcome.timed_out and "CPU" not in outcome.limit
        ended = f"the tests gave no report: {describe_exit(outcome)}"
        return SuiteReport(
            outcomes=None, details={}, ended=ended, timed_out=wall, seconds=outcome.seconds
        )
    return SuiteReport(
        outcomes=content["outcomes"],
        details=content.get("details", {}),
        seconds=outcome.seconds,
        calls=content.get("calls", {}),
        recorded=content.get("recorded", ()),
    )


def _is_report(content: Any) -> TypeGuard[dict[str, Any]]:
    """Return whether a reply has a report's form: the code under test may have written it."""
    if not isinstance(content, dict) or not isinstance(content.get("key"), str):
        return False
    return all(
        isinstance(texts, dict) and all(isinstance(text, str) for text in texts.values())
        for texts in (content.get("outcomes"), content.get("details", {}))
    )


def is_test(path: str) -> bool:
    """Return whether a path is one of tests, or of what steers or shadows them.

    >>> [is_test(path) for path in ("a/tests/x.py", "test_a.py", "conftest.py", "a/latest.py")]
    [True, True, True, False]
    """
    *folders, name = path.split("/")
    stem = name.removesuffix(".py")
    return (
        not {"test", "tests"}.isdisjoint(folders)
        or stem.startswith("test_")
        or stem.endswith(("_test", "_tests"))
        or stem in ("test", "tests", "conftest", "sitecustomize", "usercustomize")
    )


def parses(source: str) -> bool:
    """Return whether a file is Python of this version; libraries also keep files that are not."""
    try:
        ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def name_of(test: str) -> str:
    """Return the name of a test id's function.

    >>> name_of("tests/test_a.py::TestA::test_b[1-2]")
    'test_b'
    """
    return function_of(test).rpartition("::")[2]


def function_of(test: str) -> str:
    """Return the function of a test id: without the parameters.

    >>> function_of("tests/test_a.py::TestA::test_b[1-2]")
    'tests/test_a.py::TestA::test_b'
    """
    return test.partition("[")[0]


def grade(sandbox: LocalSandbox, request: Mapping[str, Any], limits: Limits) -> dict[str, Any]:
    """Decide about a patched repository: status, value and reason.

    ``request`` holds ``files``, ``roots``, the test ids ``fail_to_pass`` and ``pass_to_pass``, all
    of which have to pass, and ``unpatched`` and ``hidden``: see
    `r1lit.sandbox.hidden_calls.refused`. Without ``hidden`` the tests decide alone. ``delay_s`` is
    waited before. A patch whose tests hang is wrong if they end without it.
    """
    time.sleep(request.get("delay_s", 0.0))
    wanted = [*request["fail_to_pass"], *request["pass_to_pass"]]

    def run(files: Mapping[str, str]) -> SuiteReport:
        tests = sorted({test.partition("::")[0] for test in wanted})
        keep = {function_of(test) for test in wanted}
        return run_suite(sandbox, files, tests, limits, roots=request["roots"], keep=keep)

    report = run(request["files"])
    if report.outcomes is None:
        hangs = report.timed_out and run(_without_patch(request)).timed_out
        return _verdict("timeout" if hangs else "wrong", report.ended)
    for test in wanted:
        how = report.outcomes.get(test, "did not run")
        if how != "passed":
            kind = "fail-to-pass" if test in request["fail_to_pass"] else "pass-to-pass"
            return _verdict("wrong", f"{kind} test {test}: {how}")
    if request.get("hidden"):
        sources = {path: text for path, text in request["files"].items() if not is_test(path)}
        reason = refused(sandbox, sources, request, limits)
        if reason:
            return _verdict("wrong", reason)
    return {"status": "right", "value": 1.0, "reason": ""}


def _without_patch(request: Mapping[str, Any]) -> dict[str, str]:
    files = {**request["files"], **request["unpatched"]}
    return {path: text for path, text in files.items() if text is not None}


def _verdict(status: str, reason: str) -> dict[str, Any]:
    return {"status": status, "value": 0.0, "reason": reason[:MAX_REASON]}
