"""Before and after the limit grows, beside runs whose limit stays: a table for the README.

    python -m experiments.aha_long.jump [experiments/aha_long/sweep.yaml]

Of the evaluations in the sweep's finished runs. The table goes into the README beside the sweep
file, between two marks of its own, and its numbers are written beside it, jump.jsonl.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from experiments.measures import Measure, cons_at_most, group_by, mean_cell, number
from experiments.page import as_markdown
from experiments.paired import tested_cells
from experiments.points import Sweep
from experiments.second_table import command
from r1lit.files import Record
from r1lit.metrics import mean, paired_shift
from r1lit.worlds.long_search import LEVELS, level_of

MARKS = ("<!-- jump -->", "<!-- /jump -->")
RAW = "jump.jsonl"
GROWS, STAYS = "grows", "stays"


def count(sweep: Sweep) -> list[Record]:
    """Return a record for each finished run and measure.

    ``start`` is its first evaluation; ``before`` the last one before the limit of ``grows`` grows;
    ``after`` the mean over all evaluations after that.

    Raises:
        ValueError: if no point is finished.
    """
    results = [result for result, _ in sweep.finished()]
    grows_at = max(sweep.point(GROWS, 0).config["model"]["init_args"]["max_tokens_from"])
    asked = results[0]["final"]["pass_at_1_by_kind"]
    levels = [level for low, _ in LEVELS if (level := level_of(low)) in asked]
    measures: dict[str, Measure] = {
        "pass@1": number("pass_at_1"),
        **{f"pass@1, {level}": number("pass_at_1_by_kind", level) for level in levels},
        "cons@k": cons_at_most,
        "tokens per response": number("response_length_tokens"),
        "reflection words per response": number("reflection_words_per_response"),
    }
    records: list[Record] = []
    for result in results:
        evaluations = result["evaluations"]
        before = [e for e in evaluations if e["iteration"] <= grows_at]
        for name, value in measures.items():
            after = [value(e) for e in evaluations if e["iteration"] > grows_at]
            records.append({
                "variant": result["variant"], "seed": result["seed"], "measure": name,
                "start": value(before[0]), "before": value(before[-1]),
                "after": mean([v for v in after if v is not None]),
            })  # fmt: skip
    return records


def as_table(records: Sequence[Record]) -> str:
    """Return the Markdown table: a row a measure, and what the growth of the limit adds to it.

    The difference is paired by seed, with its 95 % interval over seeds by Student's t and Holm's
    correction for all rows; a dash stands for it where fewer than two seeds have both.
    """
    rows, shifts = [], []
    for name, own in group_by("measure", records).items():
        form = ".3f" if "@" in name else ".1f" if "words" in name else ".0f"
        grows, stays = ({r["seed"]: r for r in own if r["variant"] == v} for v in (GROWS, STAYS))
        seeds = sorted(grows.keys() & stays.keys())
        cells = [[grows[s][when] for s in grows] for when in ("start", "before", "after")]
        cells.append([stays[s]["after"] for s in stays])
        rows.append([name, *(mean_cell(values, form) for values in cells)])
        differences = [grows[s]["after"] - stays[s]["after"] for s in seeds]
        shifts.append(paired_shift(differences) if len(seeds) > 1 else None)
    tested = iter(tested_cells([shift for shift in shifts if shift]))
    for row, shift in zip(rows, shifts, strict=True):
        row += next(tested) if shift else ["–"] * 3
    names = ["", "the base", "before", "after, grows", "after, stays"]
    return as_markdown([*names, "difference, 95 % interval", "p", "p, Holm"], rows)


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status, 2 for bad input."""
    return command(args, file=__file__, read=count, as_table=as_table, marks=MARKS, raw_name=RAW)


if __name__ == "__main__":
    sys.exit(main())
