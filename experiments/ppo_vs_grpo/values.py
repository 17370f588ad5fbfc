"""How good the critics of the sweep were: a table for its README, of critics.jsonl beside it.

    python -m experiments.ppo_vs_grpo.values [experiments/ppo_vs_grpo/sweep.yaml]

Explained variance at the first iteration that trains the policy and at the last one; values against
Monte-Carlo continuations (`r1lit.modules.value_truth`) as they were measured last. Mean ± standard
error over seeds. The results go into the README beside the sweep file, between its own two marks.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from experiments.measures import group_by, mean_cell
from experiments.page import as_markdown
from experiments.points import Sweep
from experiments.second_table import command
from r1lit.files import Record, read_records

MARKS = ("<!-- critics -->", "<!-- /critics -->")
RAW = "critics.jsonl"
TRUTH = "train/value_truth"
COLUMNS = {
    "explained variance, first": "explained_variance_first",
    "last": "explained_variance_last",
    "error of values, last": "mean_abs_error",
    "mean of it: too high (+), too low (−)": "bias",
    "correlation with the truth, last": "correlation",
    "standard error of the truth": "standard_error",
}


def critics(sweep: Sweep) -> list[Record]:
    """Return a record for each finished run that has a critic.

    Raises:
        ValueError: if no point is finished.
    """
    records = []
    for result, folder in sweep.finished():
        variant, seed = result["variant"], result["seed"]
        lines = read_records(folder / "metrics.jsonl")
        if not any("train/value_loss" in line for line in lines):
            continue
        trained = [line for line in lines if "train/loss" in line]
        first, last = (trained[i].get("train/explained_variance") for i in (0, -1))
        truth = ("mean_abs_error", "bias", "correlation", "standard_error")
        records.append(
            {"variant": variant, "seed": seed}
            | {"explained_variance_first": first, "explained_variance_last": last}
            | {name: _last(lines, f"{TRUTH}/{name}") for name in truth}
        )
    return records


def as_table(records: Sequence[Record]) -> str:
    """Return the Markdown table: a row a variant."""
    columns = {h: key for h, key in COLUMNS.items() if any(r[key] is not None for r in records)}
    rows = []
    for variant, own in group_by("variant", records).items():
        cells = [mean_cell([record[key] for record in own], ".2f") for key in columns.values()]
        rows.append([variant, str(len(own)), *cells])
    return as_markdown(["variant", "n seeds", *columns], rows)


def _last(run: Sequence[Record], key: str) -> float | None:
    values = [line[key] for line in run if key in line]
    return values[-1] if values else None


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status, 2 for bad input."""
    return command(args, file=__file__, read=critics, as_table=as_table, marks=MARKS, raw_name=RAW)


if __name__ == "__main__":
    sys.exit(main())
