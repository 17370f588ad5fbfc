"""Page of the reward models: accuracy or AUROC on held-out examples, and reliability."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.curves import COLORS
from experiments.study import Study
from experiments.tables import as_markdown, group_by
from r1lit.callbacks.figures import add_caption, seeds_of, tidy
from r1lit.files import Record
from r1lit.metrics import mean_and_error

HEADINGS = (
    "model", "n seeds", "held out", "measure", "value", "s.e. seeds", "s.e. examples",
    "length alone", "above length alone", "calibration error", "training seconds",
)  # fmt: skip


def measure(report: Record) -> tuple[str, float, float, float]:
    """Return a report's main measure: its name, value, error over examples, and length alone's."""
    if "auroc" in report:
        keys = ("AUROC", "auroc", "auroc_stderr", "length_baseline_auroc")
    else:
        keys = ("accuracy", "accuracy", "accuracy_stderr", "length_baseline_accuracy")
    name, *values = keys
    value, error, alone = (float(report[key]) for key in values)
    return name, value, error, alone


def as_table(results: Sequence[Record]) -> str:
    """Return the Markdown table: a row a model, the mean over its seeds.

    Two errors: between seeds, on the same held-out examples, and of drawing other held-out
    examples, the mean of the runs' own (``r1lit.metrics.reward_models``).
    """
    rows = []
    for name, group in group_by("variant", results).items():
        reports = [result["final"]["reward_model"] for result in group]
        measured = [measure(report) for report in reports]
        value, between_seeds = mean_and_error([m[1] for m in measured])
        alone = statistics.fmean(m[3] for m in measured)
        cells = [
            name,
            str(len(group)),
            _held_out(reports[0]),
            measured[0][0],
            f"{value:.3f}",
            "–" if between_seeds is None else f"{between_seeds:.3f}",
            f"{statistics.fmean(m[2] for m in measured):.3f}",
            f"{alone:.3f}",
            f"{value - alone:+.3f}{_error_above(reports)}",
            f"{statistics.fmean(r['calibration_error'] for r in reports):.3f}",
            f"{statistics.fmean(result['seconds'] for result in group):.0f}",
        ]
        rows.append(cells)
    return as_markdown(HEADINGS, rows, num_text=4)


def _error_above(reports: Sequence[Record]) -> str:
    """Return the error over examples of what is above length alone, which pairs have."""
    errors = [report.get("above_length_baseline_stderr") for report in reports]
    known = [error for error in errors if error is not None]
    return f" ± {statistics.fmean(known):.3f}" if known else ""


def _held_out(report: Record) -> str:
    if "num_safe" in report:
        return f"{report['num_safe']} safe, {report['num_examples'] - report['num_safe']} unsafe"
    return f"{report['num_examples']} pairs"


def draw(results: Sequence[Record]) -> Figure:
    """Return the figure: every model beside chance and length alone, and how sure it was."""
    figure = Figure(figsize=(10, 4.2), dpi=110, layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw_measures(left, results)
    _plot_reliability(right, results)
    seeds = seeds_of(result["seed"] for result in results)
    add_caption(figure, f"one model a variant and seed, {seeds}; bars: ± 2 s.e. over examples")
    return figure


def _draw_measures(axes: Axes, results: Sequence[Record]) -> None:
    groups = group_by("variant", results)
    names = []
    for place, (name, group) in enumerate(groups.items()):
        measured = [measure(result["final"]["reward_model"]) for result in group]
        mean = statistics.fmean(m[1] for m in measured)
        error = statistics.fmean(m[2] for m in measured)
        color = COLORS[place % len(COLORS)]
        labels = [None] * 3 if place else ["mean over seeds", "a seed", "length alone"]
        axes.errorbar(place, mean, yerr=2 * error, color=color, marker="o", capsize=5, zorder=2,
                      label=labels[0])  # fmt: skip
        axes.scatter([place + 0.12] * len(group), [m[1] for m in measured], color=color, s=12,
                     label=labels[1])  # fmt: skip
        alone = statistics.fmean(m[3] for m in measured)
        axes.plot([place - 0.25, place + 0.25], [alone, alone], color="0.35", linestyle=":",
                  label=labels[2])  # fmt: skip
        names.append(f"{name}\n{measured[0][0]}")
    axes.axhline(0.5, color="0.7", linewidth=1, label="chance")
    axes.set_xticks(range(len(names)), names)
    tidy(axes, "Held-out examples", xlim=(-0.5, len(names) - 0.5), ylabel="measure below")
    axes.legend(frameon=False, fontsize=9)


def _plot_reliability(axes: Axes, results: Sequence[Record]) -> None:
    axes.plot([0, 1], [0, 1], color="0.7", linewidth=1, label="what was predicted")
    for place, (name, group) in enumerate(group_by("variant", results).items()):
        tables = [result["final"]["reward_model"]["reliability"] for result in group]
        points = [pooled(rows) for rows in zip(*tables, strict=True)]
        seen = [point for point in points if point is not None]
        axes.plot([p for p, _ in seen], [o for _, o in seen], marker="o", markersize=4,
                  color=COLORS[place % len(COLORS)], label=name)  # fmt: skip
    labels = {"xlabel": "predicted probability", "ylabel": "observed share"}
    tidy(axes, "Reliability, all seeds together", **labels, xlim=(0, 1), ylim=(0, 1))
    axes.legend(frameon=False)


def pooled(rows: Sequence[Record]) -> tuple[float, float] | None:
    """Return the mean prediction and outcome of one bin over several runs; None if it is empty.

    >>> full = {"count": 3, "predicted": 0.2, "observed": 0.0}
    >>> pooled([full, {"count": 1, "predicted": 0.6, "observed": 1.0}, {"count": 0}])
    (0.3, 0.25)
    """
    full = [row for row in rows if row["count"]]
    total = sum(row["count"] for row in full)
    if not total:
        return None
    predicted, observed = (
        sum(row["count"] * row[key] for row in full) / total for key in ("predicted", "observed")
    )
    return round(predicted, 9), round(observed, 9)


def read(study: Study) -> list[Record]:
    """Return the result of each finished point."""
    return study.sweep().results()


def report(results: Sequence[Record]) -> tuple[str, Figure]:
    """Return the table and the figure."""
    return as_table(results), draw(results)
