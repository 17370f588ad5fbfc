"""Make repair tasks of pure-Python libraries: one change of a syntax tree that breaks a few tests.

    python -m r1lit.environments.make_repair toolz parse --out runs/repair --most 100

A library is a name on the package index, an sdist or a folder. Its tests run in the sandbox, before
and after each change; a change that breaks 1 to 10 of those that pass is a task, whose answer takes
it back. ``tasks.jsonl`` has SWE-bench's fields and is read by `r1lit.data.RepositoryTasks`. Formats
and comments stay: only the changed characters differ. A library whose tasks are in the file is
skipped, so a command that was ended goes on with the library that it was at.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import random
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from r1lit.errors import run_script
from r1lit.files import append_records, read_records
from r1lit.sandbox import Limits, LocalSandbox
from r1lit.sandbox.repository import disguised, function_of, grade, is_test, name_of, run_suite
from r1lit.text.patches import write_diff
from r1lit.verifiers.repository import read_repository

MOST_BROKEN = 10
MOST_KEPT = 100
SWAPS: dict[type, tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.Div: ("/", "//"),
    ast.FloorDiv: ("//", "%"),
    ast.Mod: ("%", "//"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
}
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "first": "last", "last": "first"}


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change of a function, whose lines are ``first`` to ``last``.

    The bytes from ``start`` to ``end`` of the file become ``text``.
    """

    path: str
    function: str
    first: int
    last: int
    kind: str
    start: int
    end: int
    text: str

    def applied(self, source: str) -> str:
        """Return the file after the change."""
        whole = source.encode()
        return (whole[: self.start] + self.text.encode() + whole[self.end :]).decode()


def changes(path: str, source: str) -> Iterator[Change]:
    r"""Yield every change of every function of a file.

    >>> [c.kind for c in changes("f.py", "def f(a, b):\n    return a < b and g(a, b)\n")]
    ['and', '<', 'swapped arguments']
    """
    lines = [line.encode() for line in source.splitlines(keepends=True)]
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    whole = b"".join(lines)

    def at(node: ast.AST, end: bool = False) -> int:
        line, column = ("end_lineno", "end_col_offset") if end else ("lineno", "col_offset")
        return int(starts[getattr(node, line) - 1] + getattr(node, column))

    for name, function in _functions(ast.parse(source), ""):
        for node in _inside(function):
            for kind, start, end, text in _replacements(node, whole, at):
                yield Change(
                    path=path,
                    function=name,
                    first=function.lineno,
                    last=function.end_lineno or function.lineno,
                    kind=kind,
                    start=start,
                    end=end,
                    text=text,
                )


def _functions(owner: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield functions and methods with their qualified names; those inside others are theirs."""
    for node in ast.iter_child_nodes(owner):
        if isinstance(node, ast.FunctionDef):
            yield prefix + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.If | ast.Try):
            yield from _functions(node, prefix)


def _inside(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """Yield the nodes of a function's body; what an f-string holds has no reliable place."""
    waiting: list[ast.AST] = list(reversed(function.body))
    while waiting:
        node = waiting.pop()
        if not isinstance(node, ast.JoinedStr):
            yield node
            waiting += reversed(list(ast.iter_child_nodes(node)))


def _replacements(node: ast.AST, whole: bytes, at: Any) -> Iterator[tuple[str, int, int, str]]:
    """Yield what may stand in a node's place: its kind, the bytes that go, and what comes."""

    def between(left: ast.AST, right: ast.AST, operator: ast.AST) -> Iterator[Any]:
        old, new = SWAPS.get(type(operator), ("", ""))
        first, last = at(left, end=True), at(right)
        text = whole[first:last].decode()
        if old and text.count(old) == 1 and "#" not in text:
            yield old, first, last, text.replace(old, new)

    if isinstance(node, ast.Compare):
        yield from between(node.left, node.comparators[0], node.ops[0])
    elif isinstance(node, ast.BinOp):
        yield from between(node.left, node.right, node.op)
    elif isinstance(node, ast.BoolOp):
        yield from between(node.values[0], node.values[1], node.op)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        value = not node.value if isinstance(node.value, bool) else node.value + 1
        yield "constant", at(node), at(node, end=True), str(value)
    elif isinstance(node, ast.If | ast.While | ast.IfExp):
        text = whole[at(node.test) : at(node.test, end=True)].decode()
        yield "negated condition", at(node.test), at(node.test, end=True), f"not ({text})"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "removed not", at(node), at(node.operand), ""
    elif isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name) and node.func.id in NAMES:
            yield "other function", at(node.func), at(node.func, end=True), NAMES[node.func.id]
        if len(node.args) == 2 and not any(isinstance(a, ast.Starred) for a in node.args):
            one, two = (whole[at(a) : at(a, end=True)].decode() for a in node.args)
            middle = whole[at(node.args[0], end=True) : at(node.args[1])].decode()
            text = two + middle + one
            yield "swapped arguments", at(node.args[0]), at(node.args[1], end=True), text
    elif isinstance(node, ast.Assign | ast.AugAssign):
        yield "removed assignment", at(node), at(node, end=True), "pass"
    elif isinstance(node, ast.Break):
        yield "break", at(node), at(node, end=True), "continue"


def fetch(library: str, folder: Path) -> Path:
    """Put a library's files into a folder of ``folder``; return that.

    Raises:
        ValueError: if it cannot be had.
    """
    given = Path(library).expanduser()
    if given.is_dir():
        target = folder / given.name
        if not target.exists():
            shutil.copytree(given, target)
        return target
    with tempfile.TemporaryDirectory() as temporary:
        if not given.is_file():
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            name = re.split(r"[^\w.-]", library)[0]  # what builds it may come as wheels
            command += ["--no-binary", name, "--dest", temporary, library]
            run = subprocess.run(command, capture_output=True, text=True, check=False)
            found = list(Path(temporary).iterdir())
            if run.returncode or not found:
                last = run.stderr.strip().splitlines()[-1:] or ["no sdist"]
                raise ValueError(f"library: {library!r} has no sdist that pip can get: {last[0]}")
            given = found[0]
        if not tarfile.is_tarfile(given):
            raise ValueError(f"library: {given.name} is not a tar file, as an sdist is")
        with tarfile.open(given) as archive:
            name = archive.getnames()[0].split("/")[0]
            archive.extractall(folder, filter="data")
    return folder / name


@dataclass(frozen=True, kw_only=True)
class Suite:
    """A library's files, its test files, and those of its tests that pass, also in disguise."""

    repository: str
    files: Mapping[str, str]
    tests: Sequence[str]
    roots: Sequence[str]
    stable: Sequence[str]
    limits: Limits


def suite_of(sandbox: LocalSandbox, folder: Path, limits: Limits) -> Suite:
    """Run a library's tests, twice as they are and once in disguise.

    Raises:
        ValueError: if none of them passes, or none in disguise.
    """
    files = read_repository(str(folder))
    tests = [p for p in files if p.endswith(".py") and _holds_tests(p)]
    roots = ["src", ""] if (folder / "src").is_dir() else [""]
    reports = [
        run_suite(sandbox, files, tests, limits, roots=roots, details=True) for _ in range(2)
    ]
    passed = [{t for t, how in (r.outcomes or {}).items() if how == "passed"} for r in reports]
    stable = passed[0] & passed[1]
    if not stable:
        why = reports[0].ended or next(iter(reports[0].details.values()), "there are none")
        last = why.strip().splitlines()[-1]
        raise ValueError(f"library: no test of {folder.name} passes before any change: {last}")
    beside = sorted({*tests, *(p for p in files if is_test(p) and p.endswith(".py"))})
    suite = disguised(files, beside, {name_of(test) for test in stable})
    report = run_suite(sandbox, {**files, **suite.files}, tests, limits, roots=roots)
    outcomes = report.outcomes or {}
    kept = sorted(test for test in stable if outcomes.get(suite.shown(test)) == "passed")
    if not kept:
        why = report.ended or "they fail under other names"
        raise ValueError(f"library: no test of {folder.name} passes in disguise: {why}")
    longest = max(reports[0].seconds, reports[1].seconds)
    return Suite(
        repository=folder.name,
        files=files,
        tests=sorted({test.partition("::")[0] for test in kept}),
        roots=roots,
        stable=kept,
        limits=Limits(wall_s=5 * longest + 10, cpu_s=2 * longest + 5, processes=64),
    )


def _holds_tests(path: str) -> bool:
    stem = path.rpartition("/")[2].removesuffix(".py")
    return stem.startswith("test_") or stem.endswith("_test") or stem in ("test", "tests")


def task(sandbox: LocalSandbox, suite: Suite, change: Change, seed: int) -> dict[str, Any] | None:
    """Return the task that a change is, or None where it breaks no test, or too many."""
    fixed = {change.path: suite.files[change.path]}
    broken_file = {change.path: change.applied(fixed[change.path])}
    keep = {function_of(test) for test in suite.stable}
    report = run_suite(
        sandbox,
        {**suite.files, **broken_file},
        suite.tests,
        suite.limits,
        roots=suite.roots,
        keep=keep,
        details=True,
    )
    if report.outcomes is None:
        return None
    outcomes, details = report.outcomes, report.details
    broken = [test for test in suite.stable if outcomes.get(test) != "passed"]
    if not 1 <= len(broken) <= MOST_BROKEN or any(test not in outcomes for test in broken):
        return None
    places = {test.partition("::")[0] for test in broken}
    kept = [t for t in suite.stable if t.partition("::")[0] in places and t not in broken]
    kept = sorted(random.Random(seed).sample(kept, min(len(kept), MOST_KEPT)))
    request = {"files": dict(suite.files), "roots": suite.roots}
    request |= {"fail_to_pass": broken, "pass_to_pass": kept}
    if grade(sandbox, request, suite.limits)["status"] != "right":
        return None
    names = sorted({name_of(test) for test in broken})
    hidden = set(random.Random(seed).sample(names, len(names) // 2))
    shown = next(test for test in broken if name_of(test) not in hidden)
    fix = write_diff(broken_file, fixed)
    code = hashlib.sha256(fix.encode()).hexdigest()[:10]
    return {
        "instance_id": f"{suite.repository}__{code}",
        "repo": suite.repository,
        "problem_statement": statement(suite.files, change, shown, details.get(shown, ""), seed),
        "patch": fix,
        "bug": write_diff(fixed, broken_file),
        "FAIL_TO_PASS": broken,
        "PASS_TO_PASS": kept,
        "hidden": [test for test in broken if name_of(test) in hidden],
        "roots": list(suite.roots),
        "context": [[change.path, change.first, change.last]],
        "function": f"{change.path}::{change.function}",
        "kind": change.kind,
    }


def statement(files: Mapping[str, str], change: Change, test: str, failure: str, seed: int) -> str:
    """Return an issue: what was tried and what came of it; two of three name the function."""
    module = change.path.removesuffix(".py").removesuffix("/__init__").removeprefix("src/")
    module = module.replace("/", ".")
    where = (f"`{module}.{change.function}`", f"`{module}`", f"`{change.function}`")[seed % 3]
    path, name = test.partition("::")[0], name_of(test)
    tree = ast.parse(files[path])
    nodes = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == name]
    code = ast.get_source_segment(files[path], nodes[0], padded=True) if nodes else None
    lines = textwrap.dedent(code or "").splitlines()
    tried = "\n".join(f"    {line}" for line in lines[:30])
    errors = [line[1:].strip() for line in failure.splitlines() if line.startswith("E ")]
    seen = "\n".join(f"    {line}" for line in errors[:6]) or "    (no message)"
    parameters = test[len(function_of(test)) :]
    at = f", with the parameters {parameters}," if parameters else ""
    return (
        f"{where} does not do what it should.\n\nThe test `{name}` of `{path}`{at} fails:\n\n"
        f"{tried}\n\nIt ends with\n\n{seen}\n"
    )


def split_of(row: Mapping[str, Any], held_out: Sequence[str]) -> str:
    """Return a task's split: ``test`` by repository, ``validation`` by function."""
    if any(row["repo"].startswith(f"{name}-") or row["repo"] == name for name in held_out):
        return "test"
    code = hashlib.sha256(f"{row['repo']} {row['function']}".encode()).digest()[0]
    return "validation" if code < 26 else "train"


def make(
    folder: Path, sandbox: LocalSandbox, most: int, per_function: int, seed: int, num_workers: int
) -> Iterator[dict[str, Any]]:
    """Yield at most so many tasks of one library, in an order that the seed decides."""
    suite = suite_of(sandbox, folder, Limits(wall_s=300, cpu_s=150, processes=64))
    found = [
        change
        for path, source in suite.files.items()
        if _is_source(path, suite)
        for change in changes(path, source)
    ]
    random.Random(seed).shuffle(found)
    print(f"{folder.name}: {len(suite.stable)} tests pass, {len(found)} changes", flush=True)
    counts: dict[str, int] = {}
    with ThreadPoolExecutor(num_workers) as threads:
        for start in range(0, len(found), num_workers):
            batch = [
                (n, change)
                for n, change in enumerate(found[start : start + num_workers], start=start)
                if counts.get(f"{change.path}::{change.function}", 0) < per_function
            ]
            made = threads.map(lambda pair: task(sandbox, suite, pair[1], seed + pair[0]), batch)
            for row in made:
                if row is not None and sum(counts.values()) < most:
                    counts[row["function"]] = counts.get(row["function"], 0) + 1
                    yield row
            if sum(counts.values()) >= most:
                break


def _is_source(path: str, suite: Suite) -> bool:
    """Return whether a path is of a package that can be imported, or the library's one module."""
    folder, _, name = path.rpartition("/")
    if not name.endswith(".py") or is_test(path):
        return False
    named = suite.repository.rpartition("-")[0].replace("_", "").replace("-", "")
    return f"{folder}/__init__.py" in suite.files or name[:-3].replace("_", "") == named


def main() -> None:
    """Make the tasks of the command line's libraries."""
    parser = argparse.ArgumentParser(prog="python -m r1lit.environments.make_repair")
    parser.add_argument("libraries", nargs="+", help="names on the index, sdists or folders")
    parser.add_argument("--out", required=True, type=Path, help="folder of the tasks")
    parser.add_argument("--most", type=int, default=100, help="tasks a library")
    parser.add_argument("--total", type=int, help="end when the file has so many tasks")
    parser.add_argument("--per-function", type=int, default=4, help="tasks a function")
    parser.add_argument("--held-out", nargs="*", default=[], help="libraries of the test split")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--num-workers", type=int, default=2, help="sandboxes at once")
    given = parser.parse_args()
    repositories = given.out / "repositories"
    repositories.mkdir(parents=True, exist_ok=True)
    table = given.out / "tasks.jsonl"
    rows = read_records(table)
    with LocalSandbox() as sandbox:
        for library in given.libraries:
            most = given.most if given.total is None else min(given.most, given.total - len(rows))
            if most <= 0:
                print(f"{len(rows)} tasks, as many as wanted; not read: {library} and what follows")
                break
            try:
                folder = fetch(library, repositories)
                if any(row["repo"] == folder.name for row in rows):
                    print(f"{folder.name}: its tasks are in {table}", flush=True)
                    continue
                counts = {"most": most, "per_function": given.per_function}
                counts |= {"seed": given.seed, "num_workers": given.num_workers}
                made = list(make(folder, sandbox, **counts))
            except ValueError as error:
                if len(given.libraries) == 1:
                    raise
                print(f"left out: {error}", flush=True)
                continue
            made = [{**row, "split": split_of(row, given.held_out)} for row in made]
            append_records(table, made)
            rows += made
            print(f"{folder.name}: {len(made)} tasks, {len(rows)} in {table}", flush=True)
    if not rows:
        raise ValueError(f"libraries: none of {len(given.libraries)} gave a task")


if __name__ == "__main__":
    run_script("make_repair", main)
