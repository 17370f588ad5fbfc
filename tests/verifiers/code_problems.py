"""Real problems with code and their reference solutions, from the shared data."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from r1lit.batches import Problem

DATA = Path(__file__).resolve().parents[2] / ".." / "shared" / "data"
needs_data = pytest.mark.skipif(
    not (DATA / "humaneval.jsonl.gz").is_file(), reason="the shared data is not here"
)
BALANCED_TREES = """
root = Node(1); root.left = Node(2); root.right = Node(3); root.left.left = Node(4)
root.left.right = Node(5); root.left.left.left = Node(8)
root1 = Node(1); root1.left = Node(2); root1.right = Node(3); root1.left.left = Node(4)
root1.left.right = Node(5); root1.right.left = Node(6); root1.left.left.left = Node(7)
root2 = Node(1); root2.left = Node(2); root2.right = Node(3); root2.left.left = Node(4)
root2.left.right = Node(5); root2.left.left.left = Node(7)
"""
SETUP = {367: BALANCED_TREES}
"""What the file leaves out: MBPP's own set-up code of the one problem that has any."""


def fenced(code: str, language: str = "python") -> str:
    return f"<think> so </think>\n```{language}\n{code}\n```\n"


def humaneval() -> list[tuple[Problem, str]]:
    """Return the problems with their whole reference programs."""
    with gzip.open(DATA / "humaneval.jsonl.gz", "rt") as file:
        rows = [json.loads(line) for line in file]
    return [
        (
            _problem(row["task_id"], {k: row[k] for k in ("prompt", "test", "entry_point")}),
            row["prompt"] + row["canonical_solution"],
        )
        for row in rows
    ]


def mbpp() -> list[tuple[Problem, str]]:
    """Return the problems with their reference programs."""
    rows = [json.loads(line) for line in (DATA / "mbpp_test.jsonl").read_text().splitlines()]
    return [
        (
            _problem(
                f"mbpp/{row['task_id']}",
                {"tests": row["test"], "setup": SETUP.get(row["task_id"], "")},
            ),
            row["code"],
        )
        for row in rows
    ]


def code_contests() -> list[Problem]:
    rows = json.loads((DATA / "code_contests_test.json").read_text())
    return [
        _problem(f"contest/{number}", {"tests": row["tests"]}, row["problem"])
        for number, row in enumerate(rows)
    ]


def _problem(uid: str, meta: dict[str, Any], question: str = "") -> Problem:
    return Problem(uid=uid, question=question, answer="", source="test", meta=meta)
