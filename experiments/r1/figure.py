"""The shape of the stage table: a run's above, the paper's below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from experiments.r1.shape import PAPER
from experiments.r1.stages import STAGES
from r1lit.callbacks.figures import BLUE, GREEN, ORANGE, VERMILION

TITLES = ("Reasoning", "Following, language", "Preference, safety", "The helpful RM's score")
OURS = (
    (
        ("reasoning_pass_at_1", "pass@1"),
        ("cons_at_16", "cons@k"),
        ("programs_pass_at_1", "programs"),
        ("puzzles_pass_at_1", "puzzles"),
    ),
    (
        ("instruction_following", "instruction following"),
        ("language_consistency", "language consistency"),
        ("format", "format"),
    ),
    (("helpfulness_true", "helpfulness, true"), ("safety", "safety")),
    (("helpfulness_rm", "helpfulness, RM"),),
)
THEIRS = (("AIME 2024", "MATH-500", "LiveCodeBench"), ("IF-Eval",), ("AlpacaEval 2", "ArenaHard"))
LABELS = ("Zero", "Dev1", "Dev2", "Dev3", "R1")
COLORS, MARKERS = (BLUE, ORANGE, GREEN, VERMILION), "os^D"


def draw_stages(stages: Sequence[dict[str, Any]]) -> Figure:
    """Return our numbers with two standard errors, and the paper's below them.

    The reward model's score has no scale of its own, and the paper prints none.
    """
    figure = Figure(figsize=(16, 7), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    above, below = figure.subplots(2, 4)
    by_name = {stage["name"]: stage for stage in stages}
    for axes, title, series in zip(above, TITLES, OURS, strict=True):
        for (key, label), color, marker in zip(series, COLORS, MARKERS, strict=False):
            _line(axes, by_name, key, label, color, marker)
        _tidy(axes, f"{title}: the small world")
        if title != TITLES[-1]:
            axes.set_ylim(-0.03, 1.05)
    for axes, title, names in zip(below, TITLES, THEIRS, strict=False):
        for name, color, marker in zip(names, COLORS, MARKERS, strict=False):
            axes.plot(range(5), PAPER[name], color=color, marker=marker, label=name)
        _tidy(axes, f"{title.split(',')[0]}: the paper")
        axes.set_ylim(0, 102)
    below[3].remove()
    for axes in figure.axes:
        place = "upper left" if axes is above[2] else "lower right"
        axes.legend(frameon=False, fontsize=9, loc=place)
    return figure


def _line(
    axes: Axes, by_name: dict[str, Any], key: str, label: str, color: str, marker: str
) -> None:
    found = [
        (x, by_name[name][key], by_name[name].get(f"{key}_se") or 0.0)
        for x, name in enumerate(STAGES)
        if by_name.get(name, {}).get(key) is not None
    ]
    if found:
        x, y, error = (list(column) for column in zip(*found, strict=True))
        bars = [2 * e for e in error]
        axes.errorbar(x, y, bars, color=color, marker=marker, markersize=5, label=label, capsize=2)


def _tidy(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", fontweight="bold", fontsize=11)
    axes.set_xticks(range(5), LABELS)
    axes.set_xlim(-0.3, 4.3)
    axes.grid(True, color="#DDDDDD", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines["top"].set_visible(False)
