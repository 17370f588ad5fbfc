"""Mismatch between vLLM's and the trainer's log-probs, and the time of weight transfers.

    python -m experiments.vllm.mismatch runs/vllm-aha/vllm/seed-*

Prints a Markdown table, a row a run folder: medians and the largest number over its iterations. The
first transfer waits for a server that is still starting.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from experiments.launch import command_line, reported
from experiments.tables import as_markdown
from r1lit.files import read_records

COLUMNS = (
    ("train/mismatch/mean_abs", "mean difference of log-probs"),
    ("train/mismatch/max_abs", "largest difference"),
    ("time/sync_s", "seconds of a transfer"),
)


def row(run: Path) -> list[str]:
    """Return a run's row.

    Raises:
        ValueError: if it has no iteration with these numbers.
    """
    lines = read_records(run / "metrics.jsonl")
    cells = []
    for key, _ in COLUMNS:
        values = [float(line[key]) for line in lines if line.get(key) is not None]
        if not values:
            raise ValueError(f"{run}: metrics.jsonl has no {key}; name the folder of a run")
        cells.append(f"{median(values):.2g} (at most {max(values):.2g})")
    return [str(run), str(len(lines)), *cells]


@reported("mismatch")
def main(args: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status, 2 for bad input."""
    parser = command_line("experiments.vllm.mismatch", __doc__)
    parser.add_argument("runs", nargs="+", type=Path, help="run folders")
    rows = [row(run) for run in parser.parse_args(args).runs]
    print(as_markdown(["run", "iterations", *(name for _, name in COLUMNS)], rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
