"""The table of many samples: pass@k and majority vote of base and trained policies.

    python -m experiments.real_model            # fills in the README, of what is evaluated so far

The evaluations are those of ``evaluations.yaml``. What the table is made of lies beside the README,
``passes.jsonl``; without evaluations the table is made of that.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.launch import reported
from experiments.page import write_into
from experiments.points import read_sweep
from experiments.tables import as_markdown
from r1lit.files import Record, read_records

FOLDER = Path(__file__).parent
SUITE = FOLDER / "evaluations.yaml"
MARKS = ("<!-- passes -->", "<!-- /passes -->")
RAW = "passes.jsonl"
SHOWN = (1, 4, 16, 64)


def collect(suite_file: Path) -> list[Record]:
    """Return a record of each evaluation that is finished."""
    kept = ("num_problems", "num_samples", "pass_at_k", "cons_at_k", "verdicts")
    records = []
    for result in read_sweep(suite_file).results():
        (policy, prompt), report = result["variant"].split("+"), result["report"]
        own = {"policy": policy, "prompt": prompt, "seed": result["seed"]}
        own |= {key: report[key] for key in kept}
        own |= {"tokens": report["response_length"]["mean"], "truncated": report["truncated"]}
        records.append(own)
    return records


def as_table(records: Sequence[Record]) -> str:
    """Return the table: a row an evaluation, pass@k and majority vote with 95 % intervals."""
    headings = ["policy", "prompt", "problems × samples", "tokens"]
    headings += [f"pass@{k}" for k in SHOWN] + ["majority of 16", "of 64"]
    rows = []
    for r in records:
        size = f"{r['num_problems']} × {r['num_samples']}"
        cells = [r["policy"], r["prompt"], size, f"{r['tokens']:.1f}"]
        cells += [_cell(r["pass_at_k"].get(str(k))) for k in SHOWN]
        cells += [_cell(r["cons_at_k"].get(str(k))) for k in (16, 64)]
        rows.append(cells)
    return as_markdown(headings, rows, num_text=2)


def _cell(estimate: Record | None) -> str:
    if estimate is None:
        return ""
    return f"{estimate['value']:.2f} ({estimate['low']:.2f} to {estimate['high']:.2f})"


@reported("experiments.real_model")
def main(arguments: Sequence[str] | None = None, readme: Path = FOLDER / "README.md") -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m experiments.real_model", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--suite", type=Path, default=SUITE)
    options = parser.parse_args(arguments)
    records = collect(options.suite) or read_records(readme.with_name(RAW))
    if not records:
        raise ValueError(f"{options.suite}: no evaluation is finished, and there is no {RAW}")
    write_into(readme, as_table(records), raw=records, marks=MARKS, raw_name=RAW)
    return 0


if __name__ == "__main__":
    sys.exit(main())
