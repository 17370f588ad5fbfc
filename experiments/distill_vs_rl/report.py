"""Reports the experiment: a table into its README, and the figure beside it, from run folders.

    python -m experiments.distill_vs_rl.report experiments/distill_vs_rl/experiment.yaml

Mean ± standard error over seeds: the sample standard deviation over the root of their number.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.command import reported
from experiments.curves import COLORS
from experiments.distill_vs_rl.run import read_experiment
from experiments.measures import group_by, mean_cell
from experiments.page import as_markdown, write_into
from r1lit.callbacks.figures import add_caption, seeds_of, tidy
from r1lit.metrics import mean_and_error

PAPER = {"distilled": 72.6, "RL": 47.0}
"""AIME 2024 pass@1 of Qwen2.5-32B after RL, and distilled: 2501.12948v1, Table 6."""
Results = Sequence[dict[str, Any]]


def as_table(results: Results) -> str:
    """Return the Markdown table: a row an arm."""
    most = max(set.intersection(*(set(r["report"]["cons_at_k"]) for r in results)), key=int)
    names = ["arm", "n seeds", "pass@1", f"cons@{most}", "tokens per response"]
    names += ["training FLOPs", "updates", "tokens learnt from"]
    rows = []
    for arm, group in group_by("arm", results).items():
        reports = [result["report"] for result in group]
        spent = [result["compute"] for result in group if result["compute"]]
        cells = [
            arm,
            str(len(group)),
            mean_cell([r["pass_at_1"]["value"] for r in reports], ".3f"),
            mean_cell([r["cons_at_k"][most]["value"] for r in reports], ".3f"),
            mean_cell([r["response_length"]["mean"] for r in reports], ".0f"),
            *(mean_cell([s[key] for s in spent], form) for key, form in (
                ("flops", ".2e"), ("updates", ".0f"), ("num_tokens", ".0f"))),
        ]  # fmt: skip
        rows.append(cells)
    return as_markdown(names, rows)


def draw(results: Results) -> Figure:
    """Return the figure: pass@1 of every arm, a point a seed, beside the paper's."""
    figure = Figure(figsize=(9, 4), dpi=110, layout="constrained")
    ours, paper = figure.subplots(1, 2, width_ratios=(2, 1))
    for place, group in enumerate(group_by("arm", results).values()):
        values = [result["report"]["pass_at_1"]["value"] for result in group]
        mean, error = mean_and_error(values)
        _bar(ours, place, mean, error)
        label = None if place else "a seed"
        ours.scatter([place] * len(values), values, color="black", s=14, zorder=3, label=label)
    ours.legend(frameon=False, fontsize=9)
    title = "Small world: same base, equal compute"
    tidy(ours, title, ylabel="pass@1 on held-out problems", ylim=(0, 1))
    _label(ours, range(len(group_by("arm", results))), list(group_by("arm", results)))
    for place, value in enumerate(PAPER.values(), 1):
        _bar(paper, place, value / 100, None)
    _label(paper, range(1, len(PAPER) + 1), list(PAPER))
    tidy(paper, "Paper: 32B, AIME 2024", ylabel="pass@1", ylim=(0, 1))
    return figure


def _bar(axes: Axes, place: int, value: float, error: float | None) -> None:
    axes.bar(place, value, yerr=error, color=COLORS[place % len(COLORS)], capsize=4, zorder=2)


def _label(axes: Axes, places: Sequence[int], arms: Sequence[str]) -> None:
    axes.set_xticks(places, arms)


@reported("report")
def main(args: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m experiments.distill_vs_rl.report")
    parser.add_argument("experiment", type=Path, help="the experiment file")
    path = parser.parse_args(args).experiment
    experiment = read_experiment(path)
    results = experiment.results()
    if not results:
        raise ValueError(f"no run is finished: python -m experiments.distill_vs_rl.run {path}")
    num_runs = (len(experiment.arms) + 1) * len(experiment.seeds)
    note = f"Mean ± standard error over seeds; {len(results)} of {num_runs} runs finished."
    block = f"{note}\n\n{as_table(results)}"
    figure = draw(results)
    seeds = seeds_of(result["seed"] for result in results)
    add_caption(figure, f"{experiment.student}, {seeds}; bars: mean ± 1 s.e. over seeds")
    write_into(path.with_name("README.md"), block, figure, "arms.png", results)
    print(as_table(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
