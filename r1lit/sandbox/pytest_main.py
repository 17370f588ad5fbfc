"""The program that runs a repository's tests, inside a sandbox: ``main.py`` there.

It reads one JSON object: ``roots`` to import from, test ``files``, the functions to ``keep`` as
``file::Class::name`` or ``name``, ``details``, ``calls``, and a ``key``. It prints one: the key,
``outcomes`` by test id, in ``details`` the end of each failure, and in ``calls`` which test
functions call which code. Tests see neither stream.
"""

import json
import os
import sys
from collections import defaultdict
from typing import Any

FOLDER = "/program/repository"


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
        """Keep what a file fails with that cannot be imported."""
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
        """Count what follows as the test's."""
        self.now = self.tests.setdefault(nodeid.partition("[")[0], len(self.tests))

    def pytest_runtest_logfinish(self) -> None:
        """Count what follows as no test's."""
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

    key, outcomes, calls = request.pop("key"), Outcomes(request["keep"]), Calls()
    sys.setprofile(calls.profile if request["calls"] else None)
    sys.path[:0] = [f"{FOLDER}/{root}".rstrip("/") for root in request["roots"]]
    shown = "short" if request["details"] else "no"  # tracebacks take most of a failure's time
    pytest.main(
        ["-q", "-c", os.devnull, f"--rootdir={FOLDER}", "-p", "no:cacheprovider", f"--tb={shown}"]
        + ["--continue-on-collection-errors"]
        + [f"{FOLDER}/{file}" for file in request["files"]],
        plugins=[outcomes, *([calls] if request["calls"] else [])],
    )
    sys.setprofile(None)
    report = {"key": key, "outcomes": outcomes.outcomes}
    if request["details"]:
        report["details"] = outcomes.details
    if request["calls"]:
        report["calls"] = calls.report()
    os.write(answer, json.dumps(report).encode())


if __name__ == "__main__":
    main()
