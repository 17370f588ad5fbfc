"""Runs a data set's functional tests, inside a sandbox of their own.

Test code comes with a data set and is not trusted either: it has the interpreter and the installed
packages, no network, no other files, no environment. The program that it tests is in another
sandbox, behind a socket that carries plain data. Names that the tests use and do not define are
the program's.
"""

from __future__ import annotations

import ast
import builtins
import json
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from r1lit.sandbox.rpc_client import ProgramError, RemoteProgram

MAX_REASON = 300
STATUSES = ("right", "wrong", "ended", "error")


def run_tests_and_end(request: bytes, channel: int) -> NoReturn:
    """Run the tests of ``request`` against the program behind ``channel``, and end this process.

    Standard output gets one JSON object: ``status`` and ``reason``. What the tests print is lost.
    """
    answer = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    try:
        try:
            program = RemoteProgram(socket.socket(fileno=channel))
            status, reason = run_tests(json.loads(request), program)
        except BaseException as error:  # the tests' own error
            status, reason = "error", f"the tests fail by themselves: {_text(error)}"
        os.write(answer, json.dumps({"status": status, "reason": reason[:MAX_REASON]}).encode())
    finally:
        os._exit(0)


def _text(error: BaseException) -> str:
    try:
        return repr(error)
    except BaseException:
        return type(error).__name__


def run_tests(request: Mapping[str, Any], program: RemoteProgram) -> tuple[str, str]:
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
            namespace.pop(check.partition("(")[0], None)  # the program's Solution, not the prompt's
            namespace[check] = program.function(check)
            # helpers beside it, where nothing of ours defines them
            names = [name for name in free_names(tests) if name not in namespace]
        else:
            names = unknown_names(tests, namespace)
        _bind(names, tests, program, namespace)
    except ProgramError as error:
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
    return f"{type(error).__name__}: {_text(error)[:120]} at {text}"


def _bind(
    names: Sequence[str], tests: Sequence[str], program: RemoteProgram, namespace: dict[str, Any]
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
                raise ProgramError(f"the program has no {name}") from None


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
