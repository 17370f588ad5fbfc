"""Curves along training: read of a sweep's runs, and drawn with the standard error as a band."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator

from experiments.sweep import Sweep
from experiments.tables import Measure, group_by, is_measured, number
from r1lit.callbacks.figures import (
    BLACK,
    BLUE,
    GREEN,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    add_caption,
    seeds_of,
    tidy,
)
from r1lit.files import Record, read_records
from r1lit.metrics import mean, mean_and_error
from r1lit.policy.source import settings_of

BROWN = "#8C564B"
COLORS = (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY, BLACK, BROWN, "#8A8A8A", "#A0A000")
MARKERS = "os^Dv*PXph"
PANELS: tuple[tuple[str, str, Measure], ...] = (
    (
        "Language consistency",
        "words in the question's language",
        number("rewards", "language_consistency"),
    ),
    ("Accuracy on held-out problems", "pass@1", number("pass_at_1")),
    ("Response length", "tokens per response", number("response_length_tokens")),
    ("Reflection words", "words per response", number("reflection_words_per_response")),
    ("Score of the process model", "mean over responses", number("rewards", "process")),
    ("Held-out prompts", "AUROC", number("reward_model", "auroc")),
    ("Held-out pairs", "accuracy", number("reward_model", "accuracy")),
    ("Held-out documents", "loss", number("loss")),
)
"""What a sweep's figure shows along training: title, label, value."""


def style_of(index: int) -> tuple[str, str, str]:
    """Return colour, marker and line of the i-th line of a figure; from the eleventh on dashed."""
    again, place = divmod(index, len(COLORS))
    return COLORS[place], MARKERS[place], "--" if again else "-"


def draw(results: Sequence[Record], model: str = "") -> Figure:
    """Return the figure: a panel for each of ``PANELS`` that a run measured.

    A line is a variant's mean over seeds, the band its standard error; ``model`` is for the
    caption, which says so. More than ten variants are drawn by ``draw_ends``.
    """
    panels = [panel for panel in PANELS if is_measured(results, panel[2])]
    if len(group_by("variant", results)) > len(COLORS):
        return draw_ends(results, panels, model)
    figure = Figure(figsize=(14 * max(2, len(panels)) / 3, 4.6), dpi=110, layout="constrained")
    all_axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (title, label, value) in zip(all_axes, panels, strict=True):
        for index, (variant, group) in enumerate(group_by("variant", results).items()):
            color, marker, line = style_of(index)
            draw_band(axes, group, value, variant, color, marker + line)
        tidy(axes, title, xlabel="iteration", ylabel=label)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend_above(figure, all_axes[0], most=4)
    add_caption(figure, caption(results, model, lines_of(results)))
    return figure


def draw_ends(
    results: Sequence[Record], panels: Sequence[tuple[str, str, Measure]], model: str = ""
) -> Figure:
    """Return the figure of many variants: a row each, with its numbers after the last iteration."""
    groups = dict(reversed(group_by("variant", results).items()))  # the first one on top
    figure = Figure(
        figsize=(14 * max(2, len(panels)) / 3, 1.6 + 0.24 * len(groups)), dpi=110,
        layout="constrained",
    )  # fmt: skip
    all_axes = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for axes, (title, label, value) in zip(all_axes, panels, strict=True):
        firsts = [value(result["evaluations"][0]) for result in results]
        before = [first for first in firsts if first is not None]
        axes.axvline(mean(before), color="0.6", linestyle=":")
        for place, group in enumerate(groups.values()):
            ends = [value(result["final"]) for result in group]
            found, error = mean_and_error([end for end in ends if end is not None])
            axes.errorbar(found, place, xerr=error, fmt="o", color=COLORS[0], capsize=3)
        tidy(axes, title, xlabel=label, ylabel="")
        axes.set_yticks(range(len(groups)), list(groups))
    seeds = (
        "dots: means over seeds after the last iteration, bars: ± 1 s.e. of them; dotted: before"
    )
    add_caption(figure, caption(results, model, seeds))
    return figure


def legend_above(figure: Figure, axes: Axes, most: int | None = None, **style: Any) -> None:
    """Write the legend of one panel above all, in one row or in rows of ``most``."""
    handles, labels = axes.get_legend_handles_labels()
    style = {"ncols": min(len(labels), most or len(labels)), "frameon": False, **style}
    figure.legend(handles, labels, loc="outside upper center", **style)


def lines_of(results: Sequence[Record]) -> str:
    """Return what lines and bands of ``draw`` are: of one seed no mean, and no band.

    >>> lines_of([{"variant": "a"}, {"variant": "a"}, {"variant": "b"}])
    'lines: means over seeds, bands: ± 1 s.e. of them; one seed of b'
    """
    groups = group_by("variant", results)
    single = [variant for variant, group in groups.items() if len(group) == 1]
    if len(single) == len(groups):
        return "lines: one seed each"
    means = "lines: means over seeds, bands: ± 1 s.e. of them"
    return f"{means}; one seed of {', '.join(single)}" if single else means


def draw_band(
    axes: Axes,
    group: Sequence[Record],
    value: Measure,
    label: str,
    color: str,
    style: str,
) -> None:
    """Draw a value along training: the mean over the runs of ``group``, and its standard error."""
    values: dict[int, list[float]] = {}
    for result in group:
        for evaluation in result["evaluations"]:
            found = value(evaluation)
            if found is not None:
                values.setdefault(evaluation["iteration"], []).append(found)
    x = sorted(values)
    points = [mean_and_error(values[iteration]) for iteration in x]
    means = [m for m, _ in points]
    axes.plot(x, means, style, color=color, markersize=4.5, linewidth=1.8, label=label)
    low = [m - (error or 0.0) for m, error in points]
    high = [m + (error or 0.0) for m, error in points]
    axes.fill_between(x, low, high, color=color, alpha=0.13, linewidth=0)


def draw_bars(axes: Axes, results: Sequence[Record], key: str, names: Sequence[str]) -> None:
    """Draw pass@1 with its interval over problems: a place a name under ``key``, a bar a seed."""
    seeds = sorted({result["seed"] for result in results})
    width = 0.8 / max(1, len(seeds))
    for result in results:
        at, place = result["pass_at_1"], names.index(result[key])
        offset = (seeds.index(result["seed"]) - (len(seeds) - 1) / 2) * width
        error = [[at["value"] - at["low"]], [at["high"] - at["value"]]]
        axes.bar(
            place + offset, at["value"], 0.95 * width, yerr=error, capsize=4,
            color=COLORS[place], zorder=2,
        )  # fmt: skip


def draw_cells(
    axes: Axes,
    cells: Sequence[Sequence[float | None]],
    rows: Sequence[str],
    columns: Sequence[str],
    **style: Any,
) -> AxesImage:
    """Draw a table of values in colours, each with its number; None is a dash.

    ``style`` is ``Axes.imshow``'s: ``cmap``, ``vmin`` and ``vmax``.
    """
    values = np.array([[np.nan if cell is None else cell for cell in row] for row in cells])
    image = axes.imshow(values, aspect="auto", **style)
    axes.set_xticks(range(len(columns)), list(columns))
    axes.set_yticks(range(len(rows)), list(rows))
    for (row, column), value in np.ndenumerate(values):
        red, green, blue, _ = image.to_rgba(value)
        dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5 and not np.isnan(value)
        text = "–" if np.isnan(value) else f"{value:.2f}"
        axes.text(column, row, text, ha="center", va="center", color="white" if dark else "black")
    return image


def relabel(figure: Figure, labels: Mapping[str, str]) -> None:
    """Put labels for variants' names in legends and titles, also for each part of ``one+other``."""
    for text in figure.findobj(Text):
        parts = text.get_text().split("+")
        if any(part in labels for part in parts):
            text.set(text=", ".join(labels.get(part, part) for part in parts))


def smooth(values: Sequence[float], window: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Return the middle iterations and the means of ``window`` values in a row.

    Where there are fewer values, it is one mean of them all.
    """
    window = min(window, len(values))
    means = np.convolve(values, np.ones(window) / window, mode="valid")
    return np.arange(len(means)) + window // 2, means


def caption(results: Sequence[Record], model: str, *notes: str) -> str:
    """Return a figure's caption: model, seeds, held-out problems, and what lines and bands are."""
    last = results[0].get("final") or {}
    sizes = [last.get("num_problems"), last.get("num_samples")]
    held_out = f"{sizes[0]} held-out problems × {sizes[1]} responses" if all(sizes) else ""
    parts = [model, seeds_of(result["seed"] for result in results), held_out, *notes]
    return "; ".join(part for part in parts if part)


def models_of(sweep: Sweep) -> str:
    """Return the policies that the points of a sweep begin with, for a caption."""
    if sweep.model:
        return sweep.model
    points = [sweep.point(variant, sweep.seeds[0]) for variant in sweep.variants]
    models = [point.config.get("model") or {} for point in points]
    names = [
        settings_of((model.get("init_args") or {}).get("policy")).get("path") for model in models
    ]
    return ", ".join(dict.fromkeys(str(name) for name in names if name))


def read_curves(sweep: Sweep, keys: Sequence[str] = ("train/num_tokens",)) -> list[Record]:
    """Return each finished point with its ``curve``, and the ``lines`` of its metrics.jsonl.

    The curve has the tokens generated before each evaluation, and its pass@1. The tokens of an
    iteration are under the first of ``keys`` that it has.

    Raises:
        ValueError: if no point is finished.
    """
    found = []
    for result, folder in sweep.finished():
        lines = read_records(folder / "metrics.jsonl")
        num_tokens = (next(line[key] for key in keys if key in line) for line in lines)
        spent = [0.0, *accumulate(num_tokens)]
        curve = [(spent[e["iteration"]], e["pass_at_1"]) for e in result["evaluations"]]
        found.append({**result, "curve": curve, "lines": lines})
    return found


def at_tokens(curve: Sequence[tuple[float, float]], tokens: float) -> float:
    """Return the accuracy at a number of tokens, between two evaluations in a straight line.

    >>> at_tokens([(0, 0.25), (100, 0.5)], 50)
    0.375
    """
    spent, accuracy = zip(*curve, strict=True)
    return float(np.interp(tokens, spent, accuracy))
