"""A tiny package with tests, and the task to mend it."""

from __future__ import annotations

from pathlib import Path

from r1lit.problems import Problem
from r1lit.sandbox.packing import pack_arguments, pack_outcome
from r1lit.text.patches import reverse_diff, write_diff

CORE = '''"""Numbers."""

import os
import sys
import time


def total(values):
    """Return the sum."""
    result = 0
    for value in values:
        result += value
    return result


def mean(values):
    """Return the mean."""
    return total(values) / len(values)


def largest(values):
    """Return the largest value."""
    return max(values)
'''
TESTS = """from unittest import TestCase

import pytest

from tally import core


def test_total():
    assert core.total([1, 2]) == 3


@pytest.mark.parametrize("values", [[1, 3], [2, 2]])
def test_mean(values):
    assert core.mean(values) == 2


class TestMore(TestCase):
    def test_one(self):
        self.assertEqual(core.total([5]), 5)

    def test_hidden(self):
        self.assertEqual(core.total([5, 1]), 6)


def test_largest():
    assert core.largest([1, 2]) == 2
"""
FILES = {
    "tally/__init__.py": "",
    "tally/core.py": CORE,
    "tests/conftest.py": "",
    "tests/test_core.py": TESTS,
    "README.md": "Tally\n",
}
BUGGY = CORE.replace("result += value", "result -= value")
GOLD = write_diff({"tally/core.py": BUGGY}, {"tally/core.py": CORE})
TEST = "tests/test_core.py::"
FAIL = [f"{TEST}{name}" for name in ("test_total", "test_mean[values0]", "test_mean[values1]")]
FAIL += [f"{TEST}TestMore::test_one", f"{TEST}TestMore::test_hidden"]


def calls_of(name: str, results: dict[tuple[int, ...], object]) -> dict[str, object]:
    """Return ``meta.calls`` of a function of the package, whose bug shows in all of them."""
    rows = [
        [
            pack_arguments([[*values]], {}),
            pack_outcome(("returned", result, [[*values]], {})),
            True,
        ]
        for values, result in results.items()
    ]
    function = {"module": "tally.core", "name": name, "calls": rows}
    return {"packages": [], "functions": [function]}


CALLS = calls_of("total", {(1, 2): 3, (1, 3): 4, (2, 2): 4, (5,): 5, (5, 1): 6})


def write_tally(folder: Path) -> Problem:
    """Write the package, and return the task to mend its ``total``."""
    for path, content in FILES.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(content)
    return Problem(
        uid="tally-1",
        question="total([1, 2]) is -3.",
        answer=GOLD,
        source="tally",
        verifier="repository",
        meta={
            "repository": str(folder),
            "bug": reverse_diff(GOLD),
            "roots": [""],
            "fail_to_pass": FAIL,
            "pass_to_pass": [f"{TEST}test_largest"],
            "hidden": [f"{TEST}TestMore::test_hidden"],
            "calls": CALLS,
        },
    )


LINE = "        result -= value\n"
MENDED = "        result += value\n"
