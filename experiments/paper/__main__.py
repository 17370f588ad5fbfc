"""Comparison of finished runs of ``make r1`` with the paper, beyond the stage table.

    python -m experiments.paper runs/r1 runs/r1-seed-1 runs/r1-seed-2
    python -m experiments.paper experiments/paper/results/seed-*.json runs/r1-seed-3

Accuracy and thinking tokens by difficulty, safety by category, over-refusal, and length-controlled
win rates, from the evaluations' responses. Each run gets them as ``paper.json``, which stands for
the run from then on. They are printed, and put into README.md with levels.png. One run has standard
errors over problems, several have them over runs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.launch import command_line, reported
from experiments.page import write_into
from experiments.paper import levels, safety, win_rates
from experiments.paper.tables import Tables, as_markdown, combine
from r1lit.files import replace_json

HERE = Path(__file__).parent


def measure(run: Path, tokenizer: str) -> Tables:
    """Return all tables of a run.

    Raises:
        ValueError: if nothing is evaluated there.
    """
    tables = {**levels.measure(run, tokenizer), **safety.measure(run), **win_rates.measure(run)}
    if not tables:
        raise ValueError(f"{run}: no stage is evaluated: make r1 evaluates in {run / 'eval'}")
    return tables


@reported("paper")
def main(args: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = command_line("experiments.paper", __doc__)
    parser.add_argument(
        "runs", nargs="+", type=Path, help="run folders, or their paper.json, one a seed"
    )
    parser.add_argument("--tokenizer", default="models/mini", help="that counts thinking tokens")
    parser.add_argument("--readme", type=Path, default=HERE, help="the folder of README.md")
    options = parser.parse_args(args)
    found = []
    for run in options.runs:
        if run.is_file():
            found.append(json.loads(run.read_text()))
        else:
            found.append(measure(run, options.tokenizer))
            replace_json(run / "paper.json", found[-1])
    tables = combine(found)
    over = "problems; 1 seed" if len(found) == 1 else f"{len(found)} seeds"
    text = f"Mean ± standard error over {over}. In brackets: problems.\n\n{as_markdown(tables)}"
    figures = {"levels.png": levels.draw(tables, over)}
    write_into(options.readme / "README.md", text, figures)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
