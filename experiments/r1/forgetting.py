"""Forgetting: which families of facts and skills each stage of a run gains and loses.

    python -m experiments.r1.forgetting runs/r1
    python -m experiments.r1.forgetting runs/r1 runs/r1-seed-1 runs/r1-seed-2 --output forgetting.md

It reads ``eval/<stage>/responses.jsonl`` of each run. A family is what a problem's uid begins with:
of requests, such as fact, translation or writing, the value is the true helpfulness, of harm the
safety, of arithmetic (countdown, chain) the share of right responses. A value of a family is the
mean over its problems, and over runs where there are several; intervals are Student's t over runs,
or over problems of one run (five or more). A loss is a change whose 95 % interval lies below 0.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from experiments.launch import command_line, reported
from experiments.r1.stages import BASE, STAGES
from experiments.tables import (
    OVER_SEEDS,
    RULE,
    as_markdown,
    means_by_problem,
    seed_cells,
    with_interval,
)
from r1lit.files import read_records, replace_file
from r1lit.metrics import mean
from r1lit.metrics.seeds import Shift, holm, paired_shift

MEASURES = ("helpfulness_true", "safety")
"""Eval metrics that grade a request; a response without any is graded by its status."""

FEWEST = 5
"""Problems of a family in one run from which an interval is named."""

Values = dict[str, dict[str, float]]
"""The value of each problem, by family and uid."""


def family_of(uid: str) -> str:
    """Return the family of a problem of the small world.

    >>> family_of("fact-en-0-13"), family_of("chain-11*2+11")
    ('fact', 'chain')
    """
    return uid.partition("-")[0]


def value_of(record: dict[str, Any]) -> float:
    """Return how good a response is, from 0 to 1."""
    metrics = record.get("eval_metrics") or {}
    found = [float(metrics[name]) for name in MEASURES if metrics.get(name) is not None]
    return found[0] if found else float(record["status"] == "right")


def read_values(folder: Path) -> Values:
    """Return the mean value of each problem of one stage; empty where nothing is evaluated."""
    paths = sorted(folder.rglob("responses.jsonl"))
    responses = [response for path in paths for response in read_records(path)]
    values: Values = {}
    for uid, value in means_by_problem(responses, value_of).items():
        values.setdefault(family_of(uid), {})[uid] = value
    return values


def changes(before: Sequence[Values], after: Sequence[Values], family: str) -> list[float]:
    """Return the changes of a family: one a run, or one a problem of a single run."""
    differences = [
        [new[family][uid] - old[family][uid] for uid in old[family] if uid in new[family]]
        for old, new in zip(before, after, strict=True)
    ]
    if len(differences) == 1:
        return differences[0]
    return [mean(own) for own in differences]


def read_runs(runs: Sequence[Path]) -> dict[str, list[Values]]:
    """Return the values of each stage, a run each; stages that a run lacks are left out.

    Raises:
        ValueError: if fewer than two stages are evaluated in every run.
    """
    stages = {
        stage: [read_values(run / "eval" / stage) for run in runs] for stage in (BASE, *STAGES)
    }
    found = {stage: values for stage, values in stages.items() if all(values)}
    if len(found) < 2:
        raise ValueError(
            f"runs: {', '.join(map(str, runs))} have {len(found)} stages in common of"
            f" {', '.join(stages)}; each needs eval/<stage>/responses.jsonl of two or more"
        )
    return found


def means_of(stages: dict[str, list[Values]]) -> dict[str, list[float]]:
    """Return by family the mean value of each stage, of the families that every stage has."""
    families = sorted(set.intersection(*(set(v) for own in stages.values() for v in own)))
    return {
        family: [mean([mean(list(v[family].values())) for v in own]) for own in stages.values()]
        for family in families
    }


def shifts_of(stages: dict[str, list[Values]]) -> dict[tuple[str, str, str], Shift]:
    """Return the change of each family by stage before, stage after and family.

    The stages are neighbours, or the first and the last. Families of too few problems for an
    interval are left out.
    """
    names, num_runs = list(stages), len(next(iter(stages.values())))
    families, found = list(means_of(stages)), {}
    for old, new in dict.fromkeys([*pairwise(names), (names[0], names[-1])]):
        for family in families:
            own = changes(stages[old], stages[new], family)
            if len(own) > 1 and (num_runs > 1 or len(own) >= FEWEST):
                found[old, new, family] = paired_shift(own)
    return found


def of_one_run(shifts: dict[tuple[str, str, str], Shift]) -> str:
    """Return a line for each step: the families whose interval over problems excludes 0."""
    corrected = dict(zip(shifts, holm([shift.p_value for shift in shifts.values()]), strict=True))
    told: dict[tuple[str, str], list[str]] = {}
    for (old, new, family), shift in shifts.items():
        own = told.setdefault((old, new), [])
        if shift.low <= 0 <= shift.high:
            continue
        verb = "gains" if shift.mean > 0 else "loses"
        text = f"{verb} {family} {with_interval(shift, '+.2f')}"
        own.append(f"**{text}**" if corrected[old, new, family] < 0.05 else text)
    lines = [f"- {old} → {new}: {'; '.join(own) or 'none'}" for (old, new), own in told.items()]
    return "\n".join(
        [
            f"Changes whose 95 % interval (over problems of one run, {FEWEST} or more) excludes 0,"
            f" of {len(shifts)} changes; bold: clear after Holm's correction for all of them:",
            "",
            *lines,
        ]
    )


def of_runs(shifts: dict[tuple[str, str, str], Shift]) -> str:
    """Return the table of the changes whose interval over runs excludes 0."""
    cells = seed_cells(list(shifts.values()), ".2f")
    rows = [
        [f"{old} → {new}", family, *own]
        for ((old, new, family), shift), own in zip(shifts.items(), cells, strict=True)
        if not shift.low <= 0 <= shift.high
    ]
    clear = sum(p < 0.05 for p in holm([shift.p_value for shift in shifts.values()]))
    said = (
        f"Changes whose 95 % interval excludes 0, {len(rows)} of {len(shifts)} changes. Holm's"
        f" correction is for all {len(shifts)}; by it {clear} are clear."
    )
    others = sorted(own.detectable() for own in shifts.values() if own.low <= 0 <= own.high)
    if others:
        said += (
            f" Of the others, so many seeds would see one of {others[0]:.2f} to {others[-1]:.2f},"
            f" in the median {median(others):.2f}."
        )
    table = as_markdown(["step", "family", *OVER_SEEDS], rows, num_text=2)
    return f"{said}\n\n{table}\n\n{RULE}"


def as_page(stages: dict[str, list[Values]]) -> str:
    """Return the table of families by stages, and the losses and gains of each stage."""
    names = list(stages)
    rows = [
        [family, str(len(stages[names[0]][0][family])), *(f"{value:.2f}" for value in own)]
        for family, own in means_of(stages).items()
    ]
    shifts = shifts_of(stages)
    told = of_runs(shifts) if len(stages[names[0]]) > 1 else of_one_run(shifts)
    return f"{as_markdown(['family', 'problems', *names], rows)}\n\n{told}\n"


@reported("forgetting")
def main(args: Sequence[str] | None = None) -> int:
    """Print the page, and write it where ``--output`` says; return the exit status."""
    parser = command_line("experiments.r1.forgetting", __doc__)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of runs of the pipeline")
    parser.add_argument("--output", type=Path, help="a Markdown file to write")
    options = parser.parse_args(args)
    page = as_page(read_runs(options.runs))
    print(page, end="")
    if options.output is not None:
        replace_file(options.output, page.encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
