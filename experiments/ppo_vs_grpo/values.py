"""How good the critics of the sweep were: a Markdown table for its README.

    python -m experiments.ppo_vs_grpo.values [experiments/ppo_vs_grpo/sweep.yaml]

Explained variance at the first iteration that trains the policy and at the last one; values against
Monte-Carlo continuations (`r1lit.modules.value_truth`) as they were measured last. Mean ± standard
error over seeds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.points import Sweep, read_sweep
from experiments.report import group_by, mean_cell
from r1lit import jsonl
from r1lit.jsonl import Record

HEADINGS = (
    "variant", "n seeds", "explained variance, first", "last", "error of values, last",
    "correlation with the truth, last", "standard error of the truth",
)  # fmt: skip
TRUTH = "train/value_truth"


def as_table(sweep: Sweep) -> str:
    """Return the table: a row a variant that has a critic.

    Raises:
        ValueError: if no point is finished.
    """
    results = sweep.results()
    if not results:
        raise ValueError(f"{sweep.output}: no point is finished yet")
    lines = ["| " + " | ".join(HEADINGS) + " |", "|---|" + "---:|" * (len(HEADINGS) - 1)]
    for variant, group in group_by("variant", results).items():
        runs = [jsonl.read(sweep.point(variant, r["seed"]).folder / "metrics.jsonl") for r in group]
        if any("train/value_loss" in line for line in runs[0]):
            trained = [[line for line in run if "train/loss" in line] for run in runs]
            variance = "train/explained_variance"
            cells = [
                mean_cell([run[0].get(variance) for run in trained], ".2f"),
                mean_cell([run[-1].get(variance) for run in trained], ".2f"),
                mean_cell([_last(run, f"{TRUTH}/mean_abs_error") for run in runs], ".2f"),
                mean_cell([_last(run, f"{TRUTH}/correlation") for run in runs], ".2f"),
                mean_cell([_last(run, f"{TRUTH}/standard_error") for run in runs], ".2f"),
            ]
            lines.append(f"| {variant} | {len(runs)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _last(run: Sequence[Record], key: str) -> float | None:
    values = [line[key] for line in run if key in line]
    return values[-1] if values else None


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status, 2 for bad input."""
    parser = argparse.ArgumentParser(prog="python -m experiments.ppo_vs_grpo.values")
    default = Path(__file__).with_name("sweep.yaml")
    parser.add_argument("sweep", nargs="?", type=Path, default=default)
    try:
        print(as_table(read_sweep(parser.parse_args(args).sweep)))
    except ValueError as error:
        print(f"values: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
