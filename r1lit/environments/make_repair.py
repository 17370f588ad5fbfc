"""Make repair tasks of pure-Python libraries: one change of a syntax tree that breaks a few tests.

    python -m r1lit.environments.make_repair toolz parse --out runs/repair --most 100

A library is a name on the package index (``toolz``, ``toolz==1.0.0``), an sdist or a folder. Its
tests run in the sandbox, before and after each change; a change that breaks 1 to 10 of those that
pass is a task, whose answer takes it back, if calls of the changed function tell right from wrong:
see `r1lit.environments.record_calls`. In the folder ``--out``:

tasks.jsonl      the tasks, with SWE-bench's fields, for `r1lit.data.RepositoryTasks`
repositories/    the libraries' files, as their sdists have them
progress.jsonl   each change that was tried; the same command continues from it
libraries.md     what came of each library's changes, and which libraries gave none, and why

The same command makes the same tasks of the same versions; what a test prints of a set may stand in
another order. `r1lit.evaluation.check_repositories` checks them.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import random
import re
import textwrap
import time
from collections import Counter, deque
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from r1lit.console import run_script
from r1lit.environments.code_changes import Change, changes
from r1lit.environments.libraries import fetch, library_of
from r1lit.environments.record_calls import Repaired, recorded_calls
from r1lit.files import Record, append_records, held, keep_records, replace_file
from r1lit.sandbox import Limits, LocalSandbox, SandboxError
from r1lit.sandbox.pytest_main import FOLDER
from r1lit.sandbox.repository import (
    SuiteReport,
    function_of,
    grade,
    is_test,
    name_of,
    parses,
    run_suite,
)
from r1lit.text.patches import write_diff
from r1lit.verifiers.repository import read_repository

MOST_BROKEN = 10
MOST_KEPT = 100
MOST_RECORDED = 60
RESULTS = TASK, NOT_CALLED, NONE_BROKEN, MANY_BROKEN, NO_REPORT, UNSTEADY, NOT_PLAIN, NOT_MENDED = (
    "tasks",
    "not called",
    "break no test",
    f"break over {MOST_BROKEN}",
    "hang or crash",
    "differ between runs",
    "calls not plain data",
    "fix not right",
)


@dataclass(frozen=True, kw_only=True)
class Suite:
    """A library's files, and those of its tests that pass.

    ``calls`` are which test functions call which code, ``seconds`` is how long all of them take.
    """

    folder: Path
    stable: Sequence[str]
    calls: Mapping[str, Any]
    seconds: float

    @property
    def files(self) -> Mapping[str, str]:
        """The library's files."""
        return read_repository(str(self.folder))

    @property
    def roots(self) -> Sequence[str]:
        """The folders that modules are imported from."""
        return ["src", ""] if (self.folder / "src").is_dir() else [""]

    @property
    def limits(self) -> Limits:
        """Limits of a run of the tests: a change that makes tests hang ends soon."""
        return Limits(wall_s=5 * self.seconds + 10, cpu_s=2 * self.seconds + 5, processes=64)

    def near(self, change: Change) -> list[str]:
        """Return the tests that call a change's function; all if importing the library does so."""
        lines = self.calls["files"].get(change.path, {})
        numbers = {
            number
            for line, tests in lines.items()
            if change.first <= int(line) <= change.last
            for number in tests
        }
        if 0 in numbers:
            return list(self.stable)
        called = {self.calls["tests"][number] for number in numbers}
        return [test for test in self.stable if function_of(test) in called]


def suite_of(sandbox: LocalSandbox, folder: Path, longest: float = 150.0) -> Suite:
    """Run a library's tests twice, for at most so many seconds; the second finds what they call.

    Raises:
        ValueError: if none of them passes.
    """
    suite = Suite(folder=folder, stable=(), calls={}, seconds=0.0)
    files, roots = suite.files, suite.roots
    limits = Limits(  # a busy machine takes much longer than the CPU time
        wall_s=10 * longest, cpu_s=longest, processes=64, output_bytes=64 << 20
    )
    tests = [p for p in files if p.endswith(".py") and _holds_tests(p) and parses(files[p])]
    if not tests:
        raise ValueError(f"library: {folder.name} has no test files (test_*.py or *_test.py)")
    reports = [
        run_suite(sandbox, files, tests, limits, roots=roots, details=True, calls=calls)
        for calls in (False, True)
    ]
    passed = [{t for t, how in (r.outcomes or {}).items() if how == "passed"} for r in reports]
    stable = passed[0] & passed[1]
    if not stable:
        failures = iter(reports[0].details.values())
        why = reports[0].ended or reports[1].ended or next(failures, "there are none")
        last = why.strip().splitlines()[-1].removeprefix("E ").strip()
        raise ValueError(f"library: no test of {folder.name} passes before any change: {last}")
    calls, seconds = reports[1].calls, reports[0].seconds
    return replace(suite, stable=sorted(stable), calls=calls, seconds=seconds)


def _holds_tests(path: str) -> bool:
    stem = path.rpartition("/")[2].removesuffix(".py")
    return stem.startswith("test_") or stem.endswith("_test") or stem in ("test", "tests")


def attempt(
    sandbox: LocalSandbox, suite: Suite, change: Change, seed: int, tests_alone: bool = False
) -> tuple[str, dict[str, Any] | None]:
    """Return the outcome of a change, in words, and the task that it is, if it is one.

    With ``tests_alone``, tasks without calls of plain data are made, too.
    """
    fixed = {change.path: suite.files[change.path]}
    broken_file = {change.path: change.applied(fixed[change.path])}

    def run(tests: Sequence[str]) -> SuiteReport:
        return run_suite(
            sandbox,
            {**suite.files, **broken_file},
            sorted({test.partition("::")[0] for test in tests}),
            suite.limits,
            roots=suite.roots,
            keep={function_of(test) for test in tests},
            details=True,
        )

    near = suite.near(change)
    if not near:
        return NOT_CALLED, None
    report = run(near)
    if report.outcomes is None:
        return NO_REPORT, None
    outcomes = report.outcomes
    broken = [test for test in near if outcomes.get(test) != "passed"]
    if not broken:
        return NONE_BROKEN, None
    if len(broken) > MOST_BROKEN or any(test not in outcomes for test in broken):
        return MANY_BROKEN, None
    places = {test.partition("::")[0] for test in broken}
    kept = [t for t in suite.stable if t.partition("::")[0] in places and t not in broken]
    kept = sorted(random.Random(seed).sample(kept, min(len(kept), MOST_KEPT)))
    again = run([*broken, *kept])
    if broken != [t for t in (*broken, *kept) if (again.outcomes or {}).get(t) != "passed"]:
        return UNSTEADY, None
    # where importing the library runs the change, all tests are near
    calling = [*broken, *(t for t in near if t not in broken and len(near) < len(suite.stable))]
    calls = _recorded(sandbox, suite, change, calling, seed)
    if calls is None and not tests_alone:
        return NOT_PLAIN, None
    request = {
        "files": dict(suite.files),
        "roots": suite.roots,
        "fail_to_pass": broken,
        "pass_to_pass": kept,
        "unpatched": broken_file,
        "hidden": {**calls, "right": fixed} if calls else None,
    }
    if grade(sandbox, request, suite.limits)["status"] != "right":
        return NOT_MENDED, None
    failures = [report.details, again.details]
    return TASK, {**_row(suite, change, seed, broken, kept, failures), "calls": calls}


def _recorded(
    sandbox: LocalSandbox, suite: Suite, change: Change, tests: Sequence[str], seed: int
) -> dict[str, Any] | None:
    """Return the calls of a change's function that the first of some tests cause."""
    right = dict(suite.files)
    changed = {**right, change.path: change.applied(right[change.path])}
    repaired = Repaired(right=right, changed=changed, roots=suite.roots, limits=suite.limits)
    place = (change.path, change.first, change.last)
    return recorded_calls(sandbox, repaired, place, tests[:MOST_RECORDED], seed)


def _row(
    suite: Suite,
    change: Change,
    seed: int,
    broken: Sequence[str],
    kept: Sequence[str],
    failures: Sequence[Mapping[str, str]],
) -> dict[str, Any]:
    fixed = {change.path: suite.files[change.path]}
    broken_file = {change.path: change.applied(fixed[change.path])}
    names = sorted({name_of(test) for test in broken})
    hidden = set(random.Random(seed).sample(names, len(names) // 2))
    shown = next(test for test in broken if name_of(test) not in hidden)
    fix = write_diff(broken_file, fixed)
    code = hashlib.sha256(fix.encode()).hexdigest()[:10]
    return {
        "instance_id": f"{suite.folder.name}__{code}",
        "repo": suite.folder.name,
        "problem_statement": statement(
            suite.files, change, shown, [seen.get(shown, "") for seen in failures], seed
        ),
        "patch": fix,
        "bug": write_diff(fixed, broken_file),
        "FAIL_TO_PASS": list(broken),
        "PASS_TO_PASS": list(kept),
        "hidden": [test for test in broken if name_of(test) in hidden],
        "roots": list(suite.roots),
        "context": [[change.path, change.first, change.last]],
        "function": f"{change.path}::{change.function}",
        "kind": change.kind,
    }


def statement(
    files: Mapping[str, str], change: Change, test: str, failures: Sequence[str], seed: int
) -> str:
    """Return an issue, whose heading names the function: what was tried and what came of it.

    ``failures`` are of several runs: what differs between them is not stated.
    """
    module = change.path.removesuffix(".py").removesuffix("/__init__").removeprefix("src/")
    module = module.replace("/", ".")
    where = (f"`{module}.{change.function}`", f"`{change.function}` of `{module}`")[seed % 2]
    path, name = test.partition("::")[0], name_of(test)
    lines = textwrap.dedent(_code_of(files[path], test)).splitlines()
    tried = "\n".join(f"    {line}" for line in lines[:30])
    errors = [_errors(failure) for failure in failures]
    shared = [line for line in errors[0] if all(line in other for other in errors)]
    seen = "\n".join(f"    {line}" for line in shared[:6]) or "    (no message)"
    parameters = test[len(function_of(test)) :]
    at = f", with the parameters {parameters}," if parameters else ""
    return (
        f"{where} does not do what it should.\n\nThe test `{name}` of `{path}`{at} fails:\n\n"
        f"{tried}\n\nIt ends with\n\n{seen}\n"
    )


def _errors(failure: str) -> list[str]:
    """Return a failure's message, without places in memory and in the sandbox."""
    lines = [line[1:].strip() for line in failure.splitlines() if line.startswith("E ")]
    return [re.sub(r"\b0x[0-9a-f]{6,}", "0x…", line.replace(f"{FOLDER}/", "")) for line in lines]


def _code_of(source: str, test: str) -> str:
    """Return the code of a test; one that its class inherits is found by its name."""
    owner: ast.AST = ast.parse(source)
    *classes, name = function_of(test).split("::")[1:]
    for owner_name in classes:
        inside = [n for n in ast.walk(owner) if isinstance(n, ast.ClassDef)]
        owner = next((n for n in inside if n.name == owner_name), owner)
    for place in (owner, ast.parse(source)):
        for node in ast.walk(place):
            if isinstance(node, ast.FunctionDef) and node.name == name:
                return ast.get_source_segment(source, node, padded=True) or ""
    return ""


def split_of(row: Mapping[str, Any], held_out: Sequence[str]) -> str:
    """Return a task's split: ``test`` by repository, ``validation`` by function."""
    if library_of(row["repo"]) in map(library_of, held_out):
        return "test"
    code = hashlib.sha256(f"{row['repo']} {row['function']}".encode()).digest()[0]
    return "validation" if code < 26 else "train"


def changes_of(suite: Suite, seed: int) -> list[Change]:
    """Return the changes of a library's functions, in an order that the seed decides."""
    found = [
        change
        for path, source in suite.files.items()
        if _is_source(path, suite) and parses(source)
        for change in changes(path, source)
    ]
    random.Random(seed).shuffle(found)
    return found


def _is_source(path: str, suite: Suite) -> bool:
    """Return whether a path is of a package that can be imported, or the library's one module."""
    folder, _, name = path.rpartition("/")
    if not name.endswith(".py") or is_test(path):
        return False
    named = library_of(suite.folder.name).replace("-", "")
    return f"{folder}/__init__.py" in suite.files or name[:-3].replace("_", "") == named


@dataclass(frozen=True, kw_only=True)
class Options:
    """Settings of how many tasks are made, and how."""

    most: int
    total: int | None
    per_function: int
    seed: int
    num_workers: int
    longest: float
    tests_alone: bool


@dataclass(kw_only=True)
class Progress:
    """The attempts so far, in ``progress.jsonl``: a row a library, then a row a change."""

    path: Path
    rows: list[Record]

    @classmethod
    def read(cls, path: Path) -> Progress:
        """Return the attempts of earlier commands."""
        return cls(path=path, rows=keep_records(path, lambda row: True))

    def add(self, row: Record) -> None:
        """Write a row."""
        append_records(self.path, [row])
        self.rows.append(row)

    def fetched(self, library: str) -> str | None:
        """Return the folder of a library, by what it was named."""
        found = (row["repo"] for row in self.rows if row.get("library") == library)
        return next(found, None)

    def prepared(self, repository: str) -> Record | None:
        """Return the row with a library's tests."""
        found = (row for row in self.rows if row["repo"] == repository and "tests" in row)
        return next(found, None)

    def tried(self, repository: str) -> list[Record]:
        """Return the rows of a library's changes."""
        return [row for row in self.rows if row["repo"] == repository and "result" in row]


def make(
    suite: Suite,
    found: Sequence[Change],
    done: Sequence[Record],
    made: Sequence[Record],
    sandbox: LocalSandbox,
    options: Options,
) -> Generator[tuple[int, str, dict[str, Any] | None]]:
    """Yield each change that is tried: its number, what came of it, and its task, if it is one.

    The order and the tasks do not depend on the number of workers. ``done`` and ``made`` are what
    earlier commands tried and made.
    """
    counts = Counter(row["function"] for row in made)
    waiting: deque[tuple[int, Future[tuple[str, dict[str, Any] | None]]]] = deque()
    numbers = iter(range(1 + max((row["number"] for row in done), default=-1), len(found)))

    def is_wanted(number: int) -> bool:
        change = found[number]
        return counts[f"{change.path}::{change.function}"] < options.per_function

    with ThreadPoolExecutor(options.num_workers) as threads:
        try:
            while True:
                while len(waiting) < options.num_workers:
                    number = next((n for n in numbers if is_wanted(n)), None)
                    if number is None:
                        break
                    seed = options.seed + number
                    alone = options.tests_alone
                    future = threads.submit(attempt, sandbox, suite, found[number], seed, alone)
                    waiting.append((number, future))
                if not waiting:
                    return
                number, future = waiting.popleft()
                result, row = future.result()
                if is_wanted(number):
                    counts.update([row["function"]] if row else [])
                    yield number, result, row
        finally:
            threads.shutdown(cancel_futures=True)


class Maker:
    """Makes the tasks of libraries in a folder, and goes on where a command was ended."""

    def __init__(self, out: Path, held_out: Sequence[str], options: Options) -> None:
        self.repositories = out / "repositories"
        self.repositories.mkdir(parents=True, exist_ok=True)
        self.table = out / "tasks.jsonl"
        self.rows = keep_records(self.table, lambda row: True)
        self.progress = Progress.read(out / "progress.jsonl")
        self.held_out = held_out
        self.options = options

    def make(self, library: str, sandbox: LocalSandbox) -> str:
        """Make a library's tasks; return what came of it, in words.

        Raises:
            ValueError: if its files cannot be had, or its tests do not pass.
        """
        fetched = self.progress.fetched(library)
        folder = self.repositories / (fetched or "none")
        if fetched is None or not folder.is_dir():
            folder = fetch(library, self.repositories)
            self.progress.add({"library": library, "repo": folder.name})
        made = [row for row in self.rows if row["repo"] == folder.name]
        record = self.progress.prepared(folder.name)
        if record is None and made:  # of a version without progress
            return f"{folder.name}: its {len(made)} tasks are in {self.table}"
        most = self._most(len(made))
        if len(made) >= most:
            return f"{folder.name}: {len(made)} tasks are in {self.table}, as many as wanted"
        suite, found = self._prepared(folder, record, sandbox)
        done = self.progress.tried(folder.name)
        shown = {"total": most, "initial": len(made), "unit": "task", "disable": None}
        start = time.monotonic()
        with (
            tqdm(desc=folder.name, **shown) as bar,
            closing(make(suite, found, done, made, sandbox, self.options)) as results,
        ):
            for number, result, row in results:
                now = time.monotonic()
                made += self._keep(row)
                tried = {"repo": folder.name, "number": number, "result": result}
                self.progress.add({**tried, "seconds": round(now - start, 2)})
                start = now
                bar.set_postfix_str(f"change {number + 1} of {len(found)}", refresh=False)
                bar.update(len(made) - bar.n)
                if len(made) >= most:
                    break
        return f"{folder.name}: {len(made)} tasks, {len(self.rows)} in {self.table}"

    def _most(self, made: int) -> int:
        """Return how many tasks a library may have that has ``made`` so far."""
        options = self.options
        if options.total is None:
            return options.most
        return min(options.most, options.total - len(self.rows) + made)

    def _prepared(
        self, folder: Path, record: Record | None, sandbox: LocalSandbox
    ) -> tuple[Suite, list[Change]]:
        """Return a library's suite and changes; its tests run unless an earlier command did so."""
        seed = self.options.seed
        if record is not None:
            if record["seed"] != seed:
                raise ValueError(
                    f"seed: {seed}, but the changes of {folder.name} in {self.progress.path} were"
                    f" tried in the order of seed {record['seed']}; use it, or another --out"
                )
            known = {"stable": record["tests"], "calls": record["calls"]}
            suite = Suite(folder=folder, seconds=record["tests_s"], **known)
            return suite, changes_of(suite, seed)
        start = time.monotonic()
        suite = suite_of(sandbox, folder, self.options.longest)
        found = changes_of(suite, seed)
        print(f"{folder.name}: {len(suite.stable)} tests pass, {len(found)} changes", flush=True)
        self.progress.add({
            "repo": folder.name, "seed": seed, "changes": len(found),
            "tests_s": suite.seconds, "seconds": round(time.monotonic() - start, 2),
            "tests": list(suite.stable), "calls": suite.calls,
        })  # fmt: skip
        return suite, found

    def _keep(self, row: dict[str, Any] | None) -> list[Record]:
        """Write a task, unless it is there; return it in a list."""
        if row is None or any(row["instance_id"] == other["instance_id"] for other in self.rows):
            return []
        kept = {**row, "split": split_of(row, self.held_out)}
        append_records(self.table, [kept])
        self.rows.append(kept)
        return [kept]

    def summary(self, left_out: Mapping[str, str]) -> str:
        """Return a table: what came of each library's changes, and which gave none, and why."""
        lines = [
            f"| library | tests | changes | tried | {' | '.join(RESULTS)} | seconds |",
            "|---|" + "---:|" * (len(RESULTS) + 4),
        ]
        for record in (row for row in self.progress.rows if "tests" in row):
            tried = self.progress.tried(record["repo"])
            counts = Counter(row["result"] for row in tried)
            seconds = record["seconds"] + sum(row["seconds"] for row in tried)
            cells = [record["repo"], len(record["tests"]), record["changes"], len(tried)]
            cells += [counts[result] for result in RESULTS]
            lines.append("| " + " | ".join(map(str, [*cells, round(seconds)])) + " |")
        lines += [f"\nLeft out: {library}: {why}" for library, why in left_out.items()]
        return "\n".join(lines) + "\n"


def main() -> None:
    """Make the tasks of the command line's libraries."""
    parser = argparse.ArgumentParser(
        prog="python -m r1lit.environments.make_repair", fromfile_prefix_chars="@"
    )
    parser.add_argument(
        "libraries", nargs="+", help="names on the index, sdists or folders; @FILE has one a line"
    )
    parser.add_argument("--out", required=True, type=Path, help="folder of the tasks")
    parser.add_argument("--most", type=int, default=100, help="tasks a library")
    parser.add_argument("--total", type=int, help="end when the file has so many tasks")
    parser.add_argument("--per-function", type=int, default=4, help="tasks a function")
    parser.add_argument("--held-out", nargs="*", default=[], help="libraries of the test split")
    parser.add_argument("--longest", type=float, default=150, help="CPU seconds of all its tests")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--num-workers", type=int, default=2, help="sandboxes at once")
    parser.add_argument(
        "--tests-alone", action="store_true", help="also tasks whose verdicts can be forged"
    )
    given = parser.parse_args()
    paths = [Path(library).expanduser() for library in given.libraries]
    names = {library_of(str(path.resolve() if path.exists() else path)) for path in paths}
    for name in given.held_out:
        if library_of(name) not in names:
            raise ValueError(f"held_out: {name!r} is not one of the libraries")
    with held(given.out / ".lock") as lock:  # two would both write what the other has written
        if lock is None:
            raise ValueError(
                f"out: {given.out} is in use by another make_repair; wait for it, or name another"
                " folder"
            )
        make_all(given)


def make_all(given: argparse.Namespace) -> None:
    """Make the tasks, and the table of what came of each library."""
    options = Options(**{key: getattr(given, key) for key in Options.__annotations__})
    maker = Maker(given.out, given.held_out, options)
    left_out: dict[str, str] = {}
    with LocalSandbox() as sandbox:
        for library in given.libraries:
            if given.total is not None and len(maker.rows) >= given.total:
                print(f"{len(maker.rows)} tasks, as many as wanted; not read: {library} and on")
                break
            try:
                print(maker.make(library, sandbox), flush=True)
            except SandboxError as error:
                raise ValueError(f"sandbox: {error}; the same command continues") from error
            except ValueError as error:
                if len(given.libraries) == 1:
                    raise
                left_out[library] = str(error).removeprefix("library: ")
                print(f"left out: {error}", flush=True)
    if not maker.rows:
        raise ValueError(f"libraries: none of {len(given.libraries)} gave a task")
    replace_file(given.out / "libraries.md", maker.summary(left_out).encode())


if __name__ == "__main__":
    run_script("make_repair", main)
