"""The second table of the page: pass@k and majority vote of base and trained policy.

It is made of what `experiments.difficulty` has measured of each with ``sums.yaml`` (the README has
the command): one line a policy in ``runs/real_model/passes/<policy>/tasks.jsonl``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments.sweep import Sweep
from experiments.tables import as_markdown
from r1lit.files import Record, read_records
from r1lit.metrics.estimates import pass_at_k
from r1lit.metrics.intervals import bootstrap_intervals

FOLDER = Path("runs/real_model/passes")
MARKS = ("<!-- passes -->", "<!-- /passes -->")
RAW = "passes.jsonl"
SHOWN = (1, 2, 4, 8, 16, 32, 64)


def count(sweep: Sweep) -> list[Record]:
    """Return a record of each policy measured, the base first; where none was, the committed."""
    files = sorted(FOLDER.rglob("tasks.jsonl"), key=lambda file: ("sweep" in file.parts, file))
    measured = [
        {"policy": file.parent.relative_to(FOLDER).as_posix(), **record}
        for file in files
        for record in read_records(file)
    ]
    return measured or read_records(Path(__file__).with_name(RAW))


def as_table(records: Sequence[Record]) -> str:
    """Return the table: a row a policy, each cell with its 95 % interval over problems."""
    shown = [k for k in SHOWN if any(k <= r["num_samples"] for r in records)]
    headings = [
        "policy",
        "task",
        "n",
        *(f"pass@{k}" for k in shown),
        "majority vote",
        "answers read",
    ]
    rows = []
    for r in records:
        size = r["num_samples"]
        sampled = [k for k in shown if k <= size]
        passed_PK = [[pass_at_k(size, n, k) for k in sampled] for n in r["num_right"]]
        intervals = bootstrap_intervals(np.array(passed_PK))
        cells = [
            _cell(mean, *interval)
            for mean, interval in zip(np.mean(passed_PK, 0), intervals, strict=True)
        ]
        cells += ["–"] * (len(shown) - len(sampled))
        vote = r["cons_at_k"]
        cells += [_cell(vote["value"], vote["low"], vote["high"]), f"{r['readable']:.2f}"]
        rows.append([r["policy"], r["task"], f"{r['num_problems']} × {size}", *cells])
    return as_markdown(headings, rows, num_text=3)


def _cell(value: float, low: float, high: float) -> str:
    return f"{value:.2f} ({low:.2f} to {high:.2f})"
