"""The shape of the stage table: a run's above, the paper's below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.r1.shape import COUNTERPARTS, PAPER
from experiments.r1.stages import STAGES
from r1lit.callbacks.figures import (
    BLACK,
    BLUE,
    GREEN,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    add_caption,
    tidy,
)

TITLES = ("Reasoning", "Following, language", "Preference, safety", "Helpful RM")
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
VERDICTS = {
    "disagrees": VERMILION,
    "leans away": ORANGE,
    "not shown to stay": PURPLE,
    "no move": BLACK,
    "leans": SKY,
    "stays": GREEN,
    "agrees": BLUE,
}
"""The colour of a verdict; of two the one that comes first."""


def draw_stages(stages: Sequence[dict[str, Any]], runs: str = "") -> Figure:
    """Return our numbers with two standard errors, and the paper's below them.

    The reward model's score has no scale of its own, and the paper prints none. ``runs`` says in
    the caption which model and seeds are ours.
    """
    figure = Figure(figsize=(16, 7), dpi=110, layout="constrained")
    above, below = figure.subplots(2, 4)
    by_name = {stage["name"]: stage for stage in stages}
    for axes, title, series in zip(above, TITLES, OURS, strict=True):
        for (key, label), color, marker in zip(series, COLORS, MARKERS, strict=False):
            _line(axes, by_name, key, label, color, marker)
        _tidy(axes, f"{title}: the small world")
        if title == TITLES[-1]:
            axes.set_ylabel("score, no scale of its own")
        else:
            axes.set(ylim=(-0.03, 1.05), ylabel="share")
    for axes, title, names in zip(below, TITLES, THEIRS, strict=False):
        for name, color, marker in zip(names, COLORS, MARKERS, strict=False):
            axes.plot(range(5), PAPER[name], color=color, marker=marker, label=name)
        _tidy(axes, f"{title.split(',')[0]}: the paper")
        axes.set(ylim=(0, 102), ylabel="points")
    below[3].remove()
    for axes in figure.axes:
        axes.legend(frameon=False, fontsize=9, loc="best")
    over = "seeds" if any(stage.get("num_runs", 1) > 1 for stage in stages) else "problems"
    note = f"bars: ± 2 s.e. over {over}; the paper: v2 Table 3, which has no errors"
    add_caption(figure, "; ".join(filter(None, (runs, note))))
    return figure


def draw_moves(moves: Sequence[dict[str, Any]], runs: str = "") -> Figure:
    """Return what each step changed, of ``shape.check``: ours with its 95 % interval, the paper's.

    A row is a step and a measure of ours; on the left our difference, in the verdict's colour, on
    the right the paper's, for each of its columns that is compared with it.
    """
    moves = [move for move in moves if move["paper"]]
    figure = Figure(figsize=(12, 0.9 + 0.4 * len(moves)), dpi=110, layout="constrained")
    ours, paper = figure.subplots(1, 2, sharey=True)
    colors = dict(zip(COUNTERPARTS, (*COLORS, PURPLE, SKY), strict=True))
    drawn: set[str] = set()
    for row, move in enumerate(moves):
        verdict = " / ".join(dict.fromkeys(move["verdicts"].values()))
        color = next((c for name, c in VERDICTS.items() if name in verdict), PURPLE)
        errors = [[move["difference"] - move["low"]], [move["high"] - move["difference"]]]
        ours.errorbar(move["difference"], row, xerr=errors, color=color, marker="o", capsize=3)
        ours.annotate(verdict, (1.01, row), xycoords=("axes fraction", "data"), fontsize=9,
                      va="center", color=color)  # fmt: skip
        for (column, points), marker in zip(move["paper"].items(), MARKERS, strict=False):
            label = None if column in drawn else column
            drawn.add(column)
            paper.plot(points, row, marker, color=colors[column], markersize=6, label=label)
    for axes in (ours, paper):
        axes.axvline(0, color="#222222", linewidth=0.8)
    names = [f"{move['step']}: {move['key'].replace('_', ' ')}" for move in moves]
    tidy(ours, "The small world", xlabel="difference of shares, 95 % interval")
    ours.set_yticks(range(len(moves)), names)
    ours.invert_yaxis()
    tidy(paper, "The paper", xlabel="difference in points of its table")
    paper.legend(frameon=False, fontsize=9)
    add_caption(figure, "; ".join(filter(None, (runs, "the paper's differences have no errors"))))
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
    tidy(axes, title, xlim=(-0.3, 4.3), xlabel="stage")
    axes.set_xticks(range(5), LABELS)
