"""What the responses of each reward look like: a table of the page, from the runs' own responses.

    python -m experiments.real_model.forms runs/real_model/sweep > experiments/real_model/forms.md

A row is all seeds of one reward after its last evaluation, or the base before training. Intervals
are 95 % over problems (bootstrap), of each problem's mean over the seeds.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean

import numpy as np

from experiments.by_source import evaluated_in, is_right
from experiments.launch import command_line, reported
from experiments.tables import as_markdown, means_by_problem
from r1lit.files import Record
from r1lit.metrics.intervals import bootstrap_intervals

EQUATION = re.compile(r"\s*\d+ *[-+] *\d+ *= *-?\d")
NUMBER = re.compile(r"\s*-?\d+\s*")
HEADINGS = [
    "reward", "n seeds", "pass@1", "sums", "differences", "less the base", "`a ± b = c`",
    "right among those", "a number alone", "answers read", "cut",
]  # fmt: skip


def shares(runs: Sequence[Sequence[Record]], of: str = "") -> dict[str, float]:
    """Return by problem the mean over runs of the share that is right; ``of`` one source."""
    found: dict[str, list[float]] = {}
    for rows in runs:
        asked = [r for r in rows if of in ("", r["source"])]
        for uid, share in means_by_problem(asked, is_right).items():
            found.setdefault(uid, []).append(share)
    return {uid: fmean(values) for uid, values in sorted(found.items())}


def cell(values: Sequence[float], sign: str = "") -> str:
    """Return a mean with its 95 % interval over problems."""
    ((low, high),) = bootstrap_intervals(np.array(values)[:, None])
    return f"{fmean(values):{sign}.2f} ({low:.2f} to {high:.2f})"


def row(name: str, runs: Sequence[Sequence[Record]], base: dict[str, float]) -> list[str]:
    """Return one row of the table."""
    every = [r for rows in runs for r in rows]
    equations = [r for r in every if EQUATION.match(r["response"])]
    each = shares(runs)

    def part(of: Callable[[Record], bool]) -> str:
        return f"{fmean(of(r) for r in every):.2f}"

    return [
        name, str(len(runs)), cell(list(each.values())),
        *(cell(list(shares(runs, source).values())) for source in ("sums", "differences")),
        "" if each == base else cell([each[uid] - base[uid] for uid in base], "+"),
        part(lambda r: bool(EQUATION.match(r["response"]))),
        f"{fmean(r['value'] for r in equations):.2f}" if equations else "–",
        part(lambda r: bool(NUMBER.fullmatch(r["response"]))),
        part(lambda r: r["status"] in ("right", "wrong")), part(lambda r: not r["finished"]),
    ]  # fmt: skip


@reported("experiments.real_model.forms")
def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = command_line("experiments.real_model.forms", __doc__)
    parser.add_argument("sweep", type=Path, help="the folder of the study's runs")
    folder = parser.parse_args(arguments).sweep
    finished = sorted(folder.glob("*/seed-*/result.json"))
    if not finished:
        raise ValueError(f"sweep: {folder} has no finished run; python -m experiments real_model")
    runs: dict[str, list[list[list[Record]]]] = {}  # by reward and seed, its evaluations
    for file in finished:
        evaluated = list(evaluated_in(file.parent).values())
        runs.setdefault(file.parent.parent.name, []).append(evaluated)
    untrained = [evaluated[0] for evaluated in max(runs.values(), key=len)]
    base = shares(untrained)
    rows = [row("base", untrained, base)]
    for name, own in runs.items():
        rows.append(row(name, [evaluated[-1] for evaluated in own], base))
    print(as_markdown(HEADINGS, rows, num_text=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
