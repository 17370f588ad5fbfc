"""Trains by search and by GRPO, seed by seed, and reports accuracy against tokens generated.

    python -m experiments.search.training [sweep.yaml] [--seeds 0,1] [--report]

A sweep (`experiments.sweep`): finished points are skipped, an interrupted one goes on. At the end
the table of README.md and tokens.png are made; ``--report`` makes them of what is there.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from experiments.against_tokens import at_tokens, read_curves
from experiments.curves import style_of
from experiments.measures import group_by, mean_cell
from experiments.page import as_markdown
from experiments.search.training.module import SEARCH_TOKENS
from experiments.study import run_study
from experiments.sweep import Launch, in_subprocess
from r1lit.callbacks.figures import tidy
from r1lit.files import Record
from r1lit.metrics import mean

HERE = Path(__file__).parent
NUM_MARKS = 8  # of a mean curve
LAST = (
    (SEARCH_TOKENS, "tokens searched a token kept", ".0f"),
    ("train/reward/accuracy", "found right", ".3f"),
    ("train/explained_variance", "explained variance", ".2f"),
    ("train/search/share_distinct", "distinct responses", ".2f"),
    ("train/entropy", "entropy", ".2f"),
)


def as_table(results: Sequence[Record]) -> str:
    """Return the Markdown table: a row a variant, at the tokens that every run has reached."""
    shared = min(result["curve"][-1][0] for result in results)
    names = ["variant", "n seeds", f"pass@1 at {shared / 1e6:.2f} M tokens", "pass@1 at the end"]
    names += ["M tokens at the end", "seconds", *(f"{name}, last" for _, name, _ in LAST)]
    rows = []
    for variant, group in group_by("variant", results).items():
        cells = [
            variant,
            str(len(group)),
            mean_cell([at_tokens(r["curve"], shared) for r in group], ".3f"),
            mean_cell([r["curve"][-1][1] for r in group], ".3f"),
            mean_cell([r["curve"][-1][0] / 1e6 for r in group], ".2f"),
            mean_cell([r["seconds"] for r in group], ".0f"),
        ]
        for key, _, form in LAST:
            cells.append(mean_cell([_share(r["lines"][-1], key) for r in group], form))
        rows.append(cells)
    return as_markdown(names, rows)


def _share(line: Record, key: str) -> float | None:
    """Return a number of an iteration; of the searches' tokens those a token kept."""
    value = line.get(key)
    if key == SEARCH_TOKENS and value is not None:
        return value / line["train/num_tokens"]
    return value


def draw(results: Sequence[Record]) -> Figure:
    """Return the figure: held-out accuracy over tokens generated, the mean and each seed."""
    figure = Figure(figsize=(8, 4.6), dpi=110, layout="constrained")
    axes = figure.subplots()
    for index, (variant, group) in enumerate(group_by("variant", results).items()):
        color, marker, _ = style_of(index)
        for result in group:
            x, y = zip(*result["curve"], strict=True)
            axes.plot([v / 1e6 for v in x], y, color=color, linewidth=0.6, alpha=0.5)
        most = min(result["curve"][-1][0] for result in group)
        xs = [most * i / NUM_MARKS for i in range(NUM_MARKS + 1)]
        ys = [mean([at_tokens(result["curve"], x) for result in group]) for x in xs]
        axes.plot(
            [x / 1e6 for x in xs], ys, color=color, marker=marker, markersize=4, label=variant
        )
    labels = {"xlabel": "tokens generated, millions", "ylabel": "pass@1, held out"}
    tidy(axes, "Search as training against GRPO", **labels, ylim=(0, 1))
    axes.legend(frameon=False)
    return figure


def main(args: Sequence[str] | None = None, launch: Launch = in_subprocess) -> int:
    """Run the command; return its exit status: 1 if a point failed, 2 for bad input."""
    read = partial(read_curves, keys=(SEARCH_TOKENS, "train/num_tokens"))
    return run_study(args, HERE, report, "tokens.png", read=read, launch=launch)


def report(results: Sequence[Record]) -> tuple[str, Figure]:
    """Return table and figure."""
    return as_table(results), draw(results)


if __name__ == "__main__":
    sys.exit(main())
