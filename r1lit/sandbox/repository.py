"""Tests of a repository, run by pytest in a sandbox; in disguise where a verdict depends on them.

Tests run in the interpreter that imports the code under test, which can therefore forge what they
come to. `disguised` makes that hard to do and easy to find:

- test functions get random names, so no test can be treated apart by its name;
- each test that decides gets a twin that fails at its end, and each file has canaries that fail by
  what tests assert with: forged reports and assertions let them pass;
- both sides of an equality must differ from random values: an object that equals all is found.

The files are read-only, the answer carries a random key, and every expected test must have passed:
a program that ends early, skips or hangs has no verdict in its favour.
"""

from __future__ import annotations

import ast
import copy
import json
import secrets
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from r1lit.sandbox.base import Limits, Outcome
from r1lit.sandbox.grading import describe_exit
from r1lit.sandbox.local import START_SECONDS, LocalSandbox, packages

MAX_REASON = 300
_MAIN = Path(__file__).with_name("pytest_main.py")


@dataclass(frozen=True, kw_only=True)
class SuiteReport:
    """What a run of tests came to: outcomes by test id, and the ends of failures.

    ``outcomes`` is None where the run gave no report; ``ended`` says why, in words. ``timed_out``
    is about the clock, not about CPU time. ``calls`` are those of `r1lit.sandbox.pytest_main.Calls`
    where they were wanted.
    """

    outcomes: Mapping[str, str] | None
    details: Mapping[str, str]
    ended: str = ""
    timed_out: bool = False
    seconds: float = 0.0
    calls: Mapping[str, Any] = field(default_factory=dict)


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
    """
    key = secrets.token_hex(16)
    request = {"roots": list(roots), "files": list(tests), "keep": sorted(keep)}
    wanted = {"details": details, "calls": calls, "key": key}
    body = json.dumps({**request, **wanted}).encode()
    with sandbox.open(limits.scratch_bytes, packages=packages()) as container:
        container.put("main.py", _MAIN.read_text())
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
    if not isinstance(content, dict) or content.get("key") != key:
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


def files_of_tests(files: Mapping[str, str], tests: Sequence[str]) -> list[str]:
    """Return the test files that run, and those beside them that they may import."""
    beside = (p for p in files if is_test(p) and p.endswith(".py") and parses(files[p]))
    return sorted({*tests, *beside})


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


class _Disguise(ast.NodeTransformer):
    """Renames the test functions of a file, adds twins, and guards equalities."""

    def __init__(
        self, names: Mapping[str, str], twins: Collection[str], guard: str, twins_first: bool
    ) -> None:
        self.names = names
        self.twins = twins
        self.guard = guard
        self.twins_first = twins_first
        self.made: set[str] = set()

    def disguise(self, owner: ast.Module | ast.ClassDef) -> None:
        """Change the body of a module or a class."""
        body: list[ast.stmt] = []
        for node in owner.body:
            if isinstance(node, ast.ClassDef):
                self.disguise(node)
                body.append(node)
            elif isinstance(node, ast.FunctionDef) and node.name in self.names:
                body += self._test(node)
            else:
                body.append(self.visit(node))
        owner.body = body

    def _test(self, node: ast.FunctionDef) -> list[ast.stmt]:
        old = node.name
        self.visit(node)
        node.name = self.names[old]
        if old not in self.twins:
            return [node]
        twin = copy.copy(node)
        twin.name = f"{node.name[:10]}_{'0' * 16 if self.twins_first else secrets.token_hex(8)}"
        fails = ast.parse("raise AssertionError").body
        twin.body = [ast.Try(body=node.body, handlers=[], orelse=[], finalbody=fails)]
        self.made.add(twin.name)
        return [twin, node] if self.twins_first or secrets.randbelow(2) else [node, twin]

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = self.names.get(node.id, node.id)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.Compare:
        self.generic_visit(node)
        if all(isinstance(op, ast.Eq) for op in node.ops):
            node.left = self._guarded(node.left)
            node.comparators = [self._guarded(side) for side in node.comparators]
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if name.startswith("assert") and name.endswith(("Equal", "Equals")) and "Not" not in name:
            node.args[:2] = [
                side if isinstance(side, ast.Starred) else self._guarded(side)
                for side in node.args[:2]
            ]
        return node

    def _guarded(self, side: ast.expr) -> ast.expr:
        return ast.Call(func=ast.Name(self.guard, ast.Load()), args=[side], keywords=[])


_GUARD = """
def {name}(value, depth=0):
    for other in (object(), "{secret}", ("{secret}",), 0x{secret}):
        try:
            equal = bool(value == other) or bool(other == value)
        except Exception:
            equal = False
        if equal:
            raise AssertionError("equal to a random value")
    if depth < 4:
        parts = ()
        if type(value) in (list, tuple, set, frozenset):
            parts = list(value)[:200]
        elif type(value) is dict:
            parts = [part for pair in list(value.items())[:200] for part in pair]
        for part in parts:
            {name}(part, depth + 1)
    return value
"""


_CANARIES = """
def {0}():
    import pytest
    with pytest.raises(Exception):
        pass
def {1}():
    import unittest
    unittest.TestCase().assertEqual(1, "{secret}")
def {2}():
    import unittest
    unittest.TestCase().assertTrue(0)
def {3}():
    import unittest
    unittest.TestCase().assertFalse(1)
def {4}():
    import unittest
    unittest.TestCase().assertIn(1, ["{secret}"])
def {5}():
    import unittest
    unittest.TestCase().assertIs(1, "{secret}")
def {6}():
    import unittest
    unittest.TestCase().assertIsNone("{secret}")
def {7}():
    import unittest
    with unittest.TestCase().assertRaises(Exception):
        pass
"""


def _stands_first(node: ast.stmt) -> bool:
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return is_text or (isinstance(node, ast.ImportFrom) and node.module == "__future__")


@dataclass(frozen=True, kw_only=True)
class Disguised:
    """Test files in disguise: their sources, the functions' new names, and the twins' names."""

    files: Mapping[str, str]
    names: Mapping[str, str]
    twins: Collection[str]

    def shown(self, test: str) -> str:
        """Return the id that a test has in disguise."""
        function, bracket, parameters = test.partition("[")
        above, colons, name = function.rpartition("::")
        return above + colons + self.names.get(name, name) + bracket + parameters


def disguised(
    files: Mapping[str, str],
    paths: Sequence[str],
    deciding: Collection[str],
    *,
    twins_first: bool = False,
) -> Disguised:
    """Return test files whose functions have random names; ``deciding`` names get twins.

    A name has one disguise in all files: test classes inherit from those of other files. Whether a
    test or its twin runs first is random, or ``twins_first``: the test passes only if it can run
    twice.

    Raises:
        KeyError: if a file is missing.
        ValueError: if no file defines a deciding test.
        SyntaxError: if one is not Python.
    """
    trees = {path: ast.parse(files[path]) for path in paths}
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    found = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    # unittest runs methods in the order of their names
    tests = sorted(name for name in found if name.startswith("test"))
    names = {name: f"test_{i:05d}_{secrets.token_hex(8)}" for i, name in enumerate(tests)}
    if not any(name in deciding for name in tests):
        raise ValueError(f"no test file defines {', '.join(sorted(deciding))}")
    disguise = _Disguise(names, deciding, f"_{secrets.token_hex(8)}", twins_first)
    guard = _GUARD.format(name=disguise.guard, secret=secrets.token_hex(8))
    for tree in trees.values():
        disguise.disguise(tree)
        place = sum(1 for node in tree.body if _stands_first(node))
        canaries = [
            f"test_{secrets.randbelow(100000):05d}_{secrets.token_hex(8)}" for _ in range(8)
        ]
        disguise.made.update(canaries)
        text = _CANARIES.format(*canaries, secret=secrets.token_hex(8))
        tree.body[place:place] = ast.parse(guard + text).body
    sources = {p: ast.unparse(ast.fix_missing_locations(tree)) for p, tree in trees.items()}
    return Disguised(files=sources, names=names, twins=disguise.made)


def grade(sandbox: LocalSandbox, request: Mapping[str, Any], limits: Limits) -> dict[str, Any]:
    """Decide about a repository: status, value and reason.

    ``request`` holds ``files``, ``roots``, and the test ids ``fail_to_pass`` and ``pass_to_pass``,
    all of which have to pass; ``delay_s`` is waited before.
    """
    time.sleep(request.get("delay_s", 0.0))
    wanted = [*request["fail_to_pass"], *request["pass_to_pass"]]
    tests = sorted({test.partition("::")[0] for test in wanted})
    deciding = {name_of(test) for test in request["fail_to_pass"]}
    try:
        suite = disguised(request["files"], files_of_tests(request["files"], tests), deciding)
    except (SyntaxError, ValueError, RecursionError, KeyError) as error:
        return _verdict("error", f"the tests cannot be read: {error!r}")
    report = run_suite(
        sandbox,
        {**request["files"], **suite.files},
        tests,
        limits,
        roots=request["roots"],
        keep={*suite.twins, *(suite.shown(function_of(test)) for test in wanted)},
    )
    if report.outcomes is None:
        return _verdict("timeout" if report.timed_out else "wrong", report.ended)
    if any(how == "passed" and name_of(t) in suite.twins for t, how in report.outcomes.items()):
        return _verdict("wrong", "the outcomes are forged: a test that must fail has passed")
    for test in wanted:
        how = report.outcomes.get(suite.shown(test), "did not run")
        if how != "passed":
            kind = "fail-to-pass" if test in request["fail_to_pass"] else "pass-to-pass"
            return _verdict("wrong", f"{kind} test {test}: {how}")
    return {"status": "right", "value": 1.0, "reason": ""}


def _verdict(status: str, reason: str) -> dict[str, Any]:
    return {"status": status, "value": 0.0, "reason": reason[:MAX_REASON]}
