"""The program that runs a repository's tests, inside a sandbox: ``main.py`` there.

It reads one JSON object: ``roots`` to import from, test ``files``, the functions to ``keep`` as
``file::Class::name`` or ``name``, ``details``, ``calls``, ``recorded``, the ``tests`` whose own
calls are not recorded, and a ``key``. It prints one: the key, ``outcomes`` by test id, in
``details`` the end of each failure, in ``calls`` which test functions call which code, and in
``recorded`` the arguments of some calls. Tests see neither stream.
"""

import inspect
import json
import os
import sys
from collections import defaultdict
from typing import Any

FOLDER = "/program/repository"
GENERATORS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class Outcomes:
    """A pytest plugin that keeps each test's worst outcome: failed, skipped, passed."""

    order = ("passed", "skipped", "failed")

    def __init__(self, keep: list[str]) -> None:
        self.keep = set(keep)
        self.outcomes: dict[str, str] = {}
        self.details: dict[str, str] = {}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Leave out the tests that nobody asked for."""

        def kept(item: Any) -> bool:
            function = item.nodeid.partition("[")[0]
            return not self.keep.isdisjoint((function, function.rpartition("::")[2]))

        if self.keep:
            items[:] = filter(kept, items)

    def pytest_collectreport(self, report: Any) -> None:
        """Keep the error of a file that cannot be imported."""
        if report.failed:
            self.details[report.nodeid] = str(report.longrepr)[-1500:]

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Keep an outcome; an expected failure is none of a test that passes."""
        outcome = "skipped" if hasattr(report, "wasxfail") else report.outcome
        before = self.outcomes.get(report.nodeid, "passed")
        self.outcomes[report.nodeid] = max(before, outcome, key=self.order.index)
        if outcome == "failed":
            self.details[report.nodeid] = str(report.longrepr)[-1500:]


class Calls:
    """A pytest plugin that keeps which test functions call which code of the repository.

    Test 0 stands for all calls outside of tests, as when a module is imported.
    """

    def __init__(self) -> None:
        self.tests = {"": 0}
        self.now = 0
        self.calls: dict[tuple[str, int], set[int]] = defaultdict(set)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Count the calls from here on as the test's."""
        self.now = self.tests.setdefault(nodeid.partition("[")[0], len(self.tests))

    def pytest_runtest_logfinish(self) -> None:
        """Count the calls from here on as no test's."""
        self.now = 0

    def profile(self, frame: Any, event: str, _: object) -> None:
        """Keep a call; for `sys.setprofile`."""
        if event == "call":
            code = frame.f_code
            self.calls[code.co_filename, code.co_firstlineno].add(self.now)

    def report(self) -> dict[str, Any]:
        """Return the test functions, and by file and first line the numbers of those that call."""
        files: dict[str, dict[int, list[int]]] = defaultdict(dict)
        for (path, line), tests in self.calls.items():
            if path.startswith(f"{FOLDER}/"):
                files[path.removeprefix(f"{FOLDER}/")][line] = sorted(tests)
        return {"tests": list(self.tests), "files": files}


class Recorder:
    """A plugin that keeps the calls of some code, of the functions that led to it, and of tests.

    ``recorded`` is ``[path, first line, last line]``. A function that led to a call counts with the
    arguments that it has by then. Functions that tests call come last: what runs when a module is
    imported shows in them alone. Those of test files and those within others are left out.
    """

    most_calls, most_characters, most_above, from_tests = 400, 10_000, 6, 50

    def __init__(self, recorded: list[Any], tests: list[str]) -> None:
        from r1lit.sandbox import packing  # it is there where calls are recorded

        self.packing = packing
        path, self.first, self.last = recorded
        self.path = f"{FOLDER}/{path}"
        self.tests = {f"{FOLDER}/{path}" for path in tests}
        self.found: dict[tuple[str, str], dict[str, Any]] = {}
        self.begun = False

    def pytest_runtest_call(self) -> None:
        """Record from the first test on."""
        self.begun = True

    def profile(self, frame: Any, event: str, _: object) -> None:
        """Keep a call; for `sys.setprofile`."""
        code = frame.f_code
        if event != "call" or not self.begun or not code.co_filename.startswith(f"{FOLDER}/"):
            return
        is_watched = (
            code.co_filename == self.path and self.first <= code.co_firstlineno <= self.last
        )
        is_direct = frame.f_back is not None and frame.f_back.f_code.co_filename in self.tests
        if not is_watched and not is_direct:
            return
        sys.setprofile(None)  # what packs arguments is not recorded
        try:
            if is_direct and code.co_filename not in self.tests:
                self._keep(frame, self.from_tests)
            if is_watched:
                self._keep_above(frame)
        finally:
            sys.setprofile(self.profile)

    def _keep_above(self, frame: Any) -> None:
        distance, above = 0, frame
        while above is not None and distance < self.most_above:
            path = above.f_code.co_filename
            if path in self.tests:
                return
            if path.startswith(f"{FOLDER}/"):
                self._keep(above, distance)
                distance += 1
            above = above.f_back

    def _keep(self, frame: Any, distance: int) -> None:
        code = frame.f_code
        is_resumed = code.co_flags & GENERATORS and frame.f_lineno > code.co_firstlineno
        if "<" in code.co_qualname or is_resumed:
            return
        key = (frame.f_globals.get("__name__", ""), code.co_qualname)
        function = self.found.setdefault(key, {"distance": distance, "calls": {}})
        function["distance"] = min(function["distance"], distance)
        if len(function["calls"]) >= self.most_calls:
            return
        try:
            text = self.packing.pack_arguments(*self._arguments(frame, key))
        except Exception:  # whatever an object does that is looked at: it is not plain data
            return
        if len(text) <= self.most_characters:
            function["calls"][text] = None

    def _arguments(self, frame: Any, key: tuple[str, str]) -> tuple[list[Any], dict[str, Any]]:
        """Return the positional arguments and keywords of a frame, without those that are defaults.

        A default may be anything, such as a module.
        """
        code, values = frame.f_code, frame.f_locals
        names = iter(code.co_varnames)
        function = inspect.unwrap(self.packing.callee(*key))
        positional = [next(names) for _ in range(code.co_argcount)]
        by_name = [next(names) for _ in range(code.co_kwonlyargcount)]
        defaults = dict(getattr(function, "__kwdefaults__", None) or {})
        own = getattr(function, "__defaults__", None) or ()
        defaults |= zip(positional[len(positional) - len(own) :], own, strict=False)
        more = list(values[next(names)]) if code.co_flags & inspect.CO_VARARGS else []
        keywords = dict(values[next(names)]) if code.co_flags & inspect.CO_VARKEYWORDS else {}
        count = len(positional)
        while not more and count > code.co_posonlyargcount:
            name = positional[count - 1]
            if name not in defaults:
                break
            by_name.append(name)
            count -= 1
        given = {n: values[n] for n in by_name if n not in defaults or values[n] is not defaults[n]}
        return [*(values[name] for name in positional[:count]), *more], {**given, **keywords}

    def report(self) -> list[Any]:
        """Return ``[module, function, distance, arguments of its calls]`` by distance."""
        found = [[*key, f["distance"], list(f["calls"])] for key, f in self.found.items()]
        return sorted(found, key=lambda row: row[2])


def main() -> None:
    """Run the tests and print their outcomes."""
    request = json.loads(sys.stdin.read())
    answer = os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    sys.dont_write_bytecode = True
    import pytest

    key, outcomes = request.pop("key"), Outcomes(request["keep"])
    observer: Calls | Recorder | None = Calls() if request["calls"] else None
    if request["recorded"]:
        observer = Recorder(request["recorded"], request["tests"])
    sys.setprofile(observer.profile if observer else None)
    sys.path[:0] = [f"{FOLDER}/{root}".rstrip("/") for root in request["roots"]]
    shown = "short" if request["details"] else "no"  # tracebacks take most of a failure's time
    pytest.main(
        ["-q", "-c", os.devnull, f"--rootdir={FOLDER}", "-p", "no:cacheprovider", f"--tb={shown}"]
        + ["--continue-on-collection-errors"]
        + [f"{FOLDER}/{file}" for file in request["files"]],
        plugins=[outcomes, *([observer] if observer else [])],
    )
    sys.setprofile(None)
    report = {"key": key, "outcomes": outcomes.outcomes}
    if request["details"]:
        report["details"] = outcomes.details
    if observer:
        report["recorded" if request["recorded"] else "calls"] = observer.report()
    os.write(answer, json.dumps(report).encode())


if __name__ == "__main__":
    main()
