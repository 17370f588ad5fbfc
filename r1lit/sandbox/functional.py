"""Functional tests: asserts in one sandbox, about functions that run in another."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from typing import Any

from r1lit.sandbox.base import Limits, Outcome
from r1lit.sandbox.container import START_SECONDS, Container
from r1lit.sandbox.local import LocalSandbox, libraries, packages
from r1lit.sandbox.run_tests import MAX_REASON, STATUSES, free_names

TESTER_BYTES = 4 << 30
_SPARE_S = 0.5


def grade(sandbox: LocalSandbox, request: Mapping[str, Any], limits: Limits) -> dict[str, Any]:
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
