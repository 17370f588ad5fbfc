"""Page of ProcessBench: how well the models find first errors, compared with guessing."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from matplotlib.figure import Figure

from experiments.curves import COLORS
from experiments.study import Study
from experiments.tables import as_markdown, group_by, mean_cell
from r1lit.callbacks.figures import add_caption, seeds_of, tidy
from r1lit.files import Record

COLUMNS = {
    "accuracy of steps": "accuracy",
    "of the commoner label": "majority_accuracy",
    "AUROC": "auroc",
    "wrong solutions found": "error_accuracy",
    "right ones kept": "correct_accuracy",
    "F1": "f1",
    "F1 at the best threshold": "best_f1",
    "F1 of guessing": "guessing_f1",
}


def read(study: Study) -> list[Record]:
    """Return the result of each finished point."""
    return study.sweep().results()


def as_table(results: Sequence[Record]) -> str:
    """Return the Markdown table: a row for each data set, mean ± standard error over seeds."""
    rows = []
    for name, own in group_by("variant", results).items():
        reports = [result["final"]["reward_model"] for result in own]
        cells = [mean_cell([report[key] for report in reports], ".3f") for key in COLUMNS.values()]
        held_out = f"{reports[0]['num_examples']} ({reports[0]['num_with_errors']})"
        rows.append([name, str(len(own)), held_out, *cells])
    return as_markdown(["solutions of", "n seeds", "held out (wrong)", *COLUMNS], rows)


def draw(results: Sequence[Record]) -> Figure:
    """Return the figure: F1 of each data set's models beside guessing."""
    figure = Figure(figsize=(6, 4.2), dpi=110, layout="constrained")
    axes = figure.subplots()
    groups = group_by("variant", results)
    for place, own in enumerate(groups.values()):
        reports = [result["final"]["reward_model"] for result in own]
        labels = [None] * 3 if place else ["threshold 0.5, a seed", "best threshold", "guessing"]
        for key, marker, color, label in zip(
            ("f1", "best_f1"), ("o", "x"), COLORS, labels, strict=False
        ):
            values = [report[key] for report in reports]
            axes.scatter([place] * len(own), values, marker=marker, color=color, label=label)
        chance = statistics.fmean(report["guessing_f1"] for report in reports)
        axes.plot([place - 0.25, place + 0.25], [chance] * 2, color="0.35", ls=":", label=labels[2])
    axes.set_xticks(range(len(groups)), list(groups))
    shown = {"xlim": (-0.5, len(groups) - 0.5), "ylim": (0, 1), "ylabel": "F1 of first errors"}
    tidy(axes, "Held-out problems of ProcessBench", **shown)
    axes.legend(frameon=False, fontsize=9)
    seeds = seeds_of(result["seed"] for result in results)
    add_caption(figure, f"one model a data set and seed, {seeds}")
    return figure


def report(results: Sequence[Record]) -> tuple[str, Figure]:
    """Return the table and the figure."""
    return as_table(results), draw(results)
