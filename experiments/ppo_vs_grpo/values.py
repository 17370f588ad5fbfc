"""Second table of the page: how good the critics were.

Explained variance at the first iteration that trains the policy and at the last one; values against
Monte-Carlo continuations (`r1lit.steps.value_truth`) as they were measured last.
"""

from __future__ import annotations

from collections.abc import Sequence

from experiments.sweep import Sweep
from experiments.tables import number, table_by
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


def count(sweep: Sweep) -> list[Record]:
    """Return a record for each finished run that has a critic.

    Raises:
        ValueError: if no point is finished.
    """
    records = []
    for result, folder in sweep.finished():
        lines = read_records(folder / "metrics.jsonl")
        if not any("train/value_loss" in line for line in lines):
            continue
        trained = [line for line in lines if "train/loss" in line]
        first, last = (trained[i].get("train/explained_variance") for i in (0, -1))
        record = {"variant": result["variant"], "seed": result["seed"]}
        record |= {"explained_variance_first": first, "explained_variance_last": last}
        for name in ("mean_abs_error", "bias", "correlation", "standard_error"):
            key = f"{TRUTH}/{name}"
            record[name] = next((line[key] for line in reversed(lines) if key in line), None)
        records.append(record)
    return records


def as_table(records: Sequence[Record]) -> str:
    """Return the Markdown table: a row a variant, mean ± standard error over seeds."""
    known = {h: key for h, key in COLUMNS.items() if any(r[key] is not None for r in records)}
    columns = [(heading, number(key), ".2f") for heading, key in known.items()]
    return table_by("variant", records, columns)
