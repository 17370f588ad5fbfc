"""The program that runs a repository's tests, inside a sandbox: ``main.py`` there.

It reads one JSON object: ``roots`` to import from, test ``files``, the functions to ``keep`` as
``file::Class::name`` or ``name``, ``details``, and a ``key``. It prints one: the key, ``outcomes``
by test id, and in ``details`` the end of each failure. Tests see neither stream.
"""

import json
import os
import sys
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
    sys.path[:0] = [f"{FOLDER}/{root}".rstrip("/") for root in request["roots"]]
    pytest.main(
        ["-q", "-c", os.devnull, f"--rootdir={FOLDER}", "-p", "no:cacheprovider", "--tb=short"]
        + ["--continue-on-collection-errors"]
        + [f"{FOLDER}/{file}" for file in request["files"]],
        plugins=[outcomes],
    )
    report = {"key": key, "outcomes": outcomes.outcomes}
    if request["details"]:
        report["details"] = outcomes.details
    os.write(answer, json.dumps(report).encode())


if __name__ == "__main__":
    main()
