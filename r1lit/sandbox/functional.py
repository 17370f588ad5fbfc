"""Functional tests: asserts that run here, about functions that run in a sandbox.

The tests and what they expect never enter the sandbox. They run in a process forked for one item,
because a data set's code may hang too. Names they use and do not define are the program's.
"""

from __future__ import annotations

import ast
import builtins
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from r1lit.sandbox.base import Limits, Outcome
from r1lit.sandbox.calls import Program, ProgramFailed
from r1lit.sandbox.kernel import die_with_parent
from r1lit.sandbox.local import Box, LocalSandbox

TESTER_BYTES = 4 << 30
MAX_REASON = 300
_SPARE_S = 0.5


def judge(sandbox: LocalSandbox, request: Mapping[str, Any], limits: Limits) -> dict[str, Any]:
    """Decide about one program: status, value and reason.

    ``request`` holds ``files`` (name to source, loaded in turn into one module), ``given`` (code of
    ours that the tests may use), ``tests`` (a list of sources, run in order) and, for HumanEval,
    ``check``: the name of the function to be handed to the tests' ``check``. Given code that uses
    the program's own names, such as MBPP's ``root = Node(1)``, can only run where the program does:
    it is loaded after it.
    """
    files, given = dict(request["files"]), request["given"]
    if free_names([given]):
        files["given.py"], given = given, ""
    request = {**request, "files": files, "given": given}
    ours, theirs = socket.socketpair()
    with ours, theirs, sandbox.open(limits.scratch_bytes, channel=theirs) as box:
        theirs.close()
        for name, source in request["files"].items():
            box.put(name, source)
        box.start({"python": list(request["files"]), "talk": True}, limits)
        deadline = time.monotonic() + limits.wall_s
        decision = _in_tester(request, ours, deadline)
        if decision is None:
            return _lost("timeout", f"no decision in {limits.wall_s:g} s")
        if decision["status"] == "ended":
            return _explain_end(box, decision["reason"], limits)
    return {**decision, "value": float(decision["status"] == "right")}


def _lost(status: str, reason: str) -> dict[str, Any]:
    return {"status": status, "value": 0.0, "reason": reason[:MAX_REASON]}


def _explain_end(box: Box, reason: str, limits: Limits) -> dict[str, Any]:
    outcome = box.outcome(limits.wall_s + _SPARE_S)
    if outcome.timed_out:
        return _lost("timeout", f"the program ran out of {outcome.limit}")
    return _lost("wrong", f"{reason}: {describe_end(outcome)}")


def describe_end(outcome: Outcome) -> str:
    """Say in words how a run ended."""
    if outcome.limit:
        return f"stopped at its limit of {outcome.limit}"
    last = outcome.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
    how = f"signal {outcome.signal}" if outcome.signal else f"exit code {outcome.exit_code}"
    return f"{how}, {last[:200]}" if last else how


def _in_tester(
    request: Mapping[str, Any], channel: socket.socket, deadline: float
) -> dict[str, str] | None:
    """Run the tests in a process of their own; return its decision, ``None`` if it has none."""
    theirs, ours = os.pipe()
    tester = os.fork()
    if tester == 0:
        os.close(theirs)
        _test_and_end(request, channel, ours, deadline)
    os.close(ours)
    channel.close()
    try:
        patience = max(0.0, deadline - time.monotonic())
        if not select.select([theirs], [], [], patience)[0]:
            return None
        with open(theirs, "rb", closefd=False) as pipe:
            text = pipe.read()
    finally:
        os.close(theirs)
        os.kill(tester, signal.SIGKILL)
        _, status = os.waitpid(tester, 0)
    if text:
        decision: dict[str, str] = json.loads(text)
        return decision
    code = os.waitstatus_to_exitcode(status)
    if code == -signal.SIGXCPU:
        return None
    return {"status": "error", "reason": f"the process with the tests died (exit status {code})"}


def _test_and_end(
    request: Mapping[str, Any], channel: socket.socket, reply: int, deadline: float
) -> NoReturn:
    try:
        die_with_parent()
        seconds = int(deadline - time.monotonic()) + 2
        # a second more for the harder limit: its SIGKILL would not say what it is for
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        resource.setrlimit(resource.RLIMIT_AS, (TESTER_BYTES, TESTER_BYTES))
        with open(os.devnull, "w") as nowhere:
            sys.stdout = sys.stderr = nowhere
            try:
                status, reason = run_tests(request, Program(channel))
            except BaseException as error:  # of the tests' own doing
                status, reason = "error", f"the tests fail by themselves: {error!r}"
        content = json.dumps({"status": status, "reason": reason[:MAX_REASON]}).encode()
        os.write(reply, content)
    finally:
        os._exit(0)


def run_tests(request: Mapping[str, Any], program: Program) -> tuple[str, str]:
    """Run tests against a program; return status and reason.

    The status is ``ended`` when the program failed in a way that its end may explain.
    """
    tests: list[str] = request["tests"]
    check: str | None = request.get("check")
    try:
        program.load()
        namespace: dict[str, Any] = {"__name__": "tests"}
        exec(request["given"], namespace)
        if check:
            namespace[check] = program.function(check)
            # helpers beside it, where nothing of ours defines them
            names = [name for name in free_names(tests) if name not in namespace]
        else:
            names = unknown_names(tests, namespace)
        _bind(names, tests, program, namespace)
    except ProgramFailed as error:
        return "ended", str(error)
    for number, test in enumerate(tests, start=1):
        try:
            exec(compile(test, f"test {number}", "exec"), namespace)
            if check:
                namespace["check"](namespace[check])
        except BaseException as error:
            if program.failure:
                return "ended", program.failure
            return "wrong", f"test {number} of {len(tests)}: {_describe(error, test)}"
        if program.failure:  # the tests caught it
            return "ended", program.failure
    return "right", ""


def _describe(error: BaseException, test: str) -> str:
    """Say which assert failed, or what was raised at which line."""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.startswith("test "):
            line = trace.tb_lineno
        trace = trace.tb_next
    lines = test.splitlines()
    text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    if isinstance(error, AssertionError) and not error.args:
        return f"failed {text}"
    return f"{type(error).__name__}: {str(error)[:120]} at {text}"


def _bind(
    names: Sequence[str], tests: Sequence[str], program: Program, namespace: dict[str, Any]
) -> None:
    """Put the program's functions and values under ``names`` into the tests' namespace."""
    called = {
        node.func.id
        for test in tests
        for node in ast.walk(ast.parse(test))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    for name in names:
        if name in called or len(names) == 1:
            namespace[name] = program.function(name)
        elif name in sys.stdlib_module_names:
            namespace[name] = __import__(name)
        else:
            try:
                namespace[name] = program.value(name)
            except AttributeError:
                raise ProgramFailed(f"the program has no {name}") from None


def unknown_names(tests: Sequence[str], given: Mapping[str, Any]) -> list[str]:
    """Return the names that the tests use and nothing of ours defines: those of the program.

    If there is none, the program bears the name of a builtin: the function that the first test
    calls first.

    >>> unknown_names(["assert set(f(1)) == set(g)"], {})
    ['g', 'f']
    >>> unknown_names(["assert sum(10, 15) == 6"], {})
    ['sum']
    """
    unknown = [name for name in free_names(tests) if name not in given]
    if unknown:
        return unknown
    calls = [n.func for test in tests for n in ast.walk(ast.parse(test)) if isinstance(n, ast.Call)]
    return [function.id for function in calls if isinstance(function, ast.Name)][:1]


def free_names(sources: Sequence[str]) -> list[str]:
    """Return the names that ``sources`` use and neither they nor Python define.

    >>> free_names(["import math", "x = 1", "print(math.pi * x * y)"])
    ['y']
    """
    nodes = [node for source in sources for node in ast.walk(ast.parse(source))]
    names = [node for node in nodes if isinstance(node, ast.Name)]
    bound = {node.id for node in names if not isinstance(node.ctx, ast.Load)}
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            bound |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            bound.add(node.name)
    free = [n.id for n in names if n.id not in bound and not hasattr(builtins, n.id)]
    return list(dict.fromkeys(free))
