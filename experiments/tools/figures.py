"""Figures of the study of tools, one a question of its page; a colour means one thing in all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.curves import BROWN, draw_band
from experiments.tables import group_by, number
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
from r1lit.files import Record
from r1lit.metrics import mean, mean_and_error

FULL, PRICE, NO_MASK = (BLUE, "o"), (GREEN, "^"), (SKY, "h")
CHANCE, WRONG, NOTHING = (BLACK, "s"), (PURPLE, "v"), (ORANGE, "D")
PARTIAL, SUMMED = (VERMILION, "P"), (BROWN, "X")

Lines = Mapping[str, tuple[str, tuple[str, str]]]
"""By variant its label, and its colour and marker, which mean the same in all figures."""

LOOK_UP: Lines = {
    "true": ("true results", FULL),
    "price": ("true results, a call costs 0.1", PRICE),
    "no-mask": ("true results, no mask", NO_MASK),
    "random": ("random results", CHANCE),
    "shuffled": ("results about others", WRONG),
    "empty": ("no results", NOTHING),
}
GUESS: Lines = {"true": ("true answers", FULL), "coin": ("random answers", CHANCE)}
SUMS: Lines = {
    "right": ("right calculator", FULL),
    "wrong": ("wrong in 30 of 100 calls", WRONG),
    "failing": ("fails in 20 of 100 calls", NOTHING),
}
JSON: Lines = {
    "right": ("the right object is paid", FULL),
    "valid": ("a valid object is paid", PARTIAL),
    "both": ("both are paid", SUMMED),
}
ROLES: Lines = {
    "every": ("all four replies are paid", FULL),
    "last": ("the last reply is paid", PARTIAL),
    "random": ("random reward", CHANCE),
}

MEANS = "lines: means over seeds, bands: ± 1 s.e. of them"
SHARE = "share of right answers"


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One panel along training: whose problems, and which number of theirs.

    ``levels`` are values to compare with, by name. The axis ends at ``top``, if it is given. With
    ``each_seed`` a line is one seed, for means that describe no run.
    """

    title: str
    ylabel: str
    source: str
    key: str
    top: float | None = None
    levels: Mapping[str, float] | None = None
    variants: Sequence[str] | None = None
    each_seed: bool = False


@dataclass(frozen=True, kw_only=True)
class Question:
    """One figure: its part of the study, the panels that answer it, and how they are drawn."""

    part: str
    lines: Lines
    panels: Sequence[Panel]
    caption: str
    columns: int = 3


ASKED = "20 held-out questions × 4 responses a panel"
LAST_BASE = "models/tools after the step pages"
QUESTIONS = {
    "unknown_people": Question(
        part="look-up",
        lines=LOOK_UP,
        caption=f"models/tools; {ASKED}; questions about people whom only the tool knows; {MEANS}",
        panels=(
            Panel(title="Calls", ylabel="calls per question", source="look-up unknown",
                  key="calls"),
            Panel(title="Right answers", ylabel=SHARE, source="look-up unknown", key="right",
                  top=1),
            Panel(title="Unreadable calls", ylabel="unreadable calls per question",
                  source="look-up unknown", key="invalid"),
        ),
    ),
    "known_people": Question(
        part="look-up",
        lines=LOOK_UP,
        caption=f"models/tools; {ASKED}; questions that the base answers without a tool; left and"
        f" middle: a line is one seed; right: {MEANS}",
        panels=(
            Panel(title="Calls, true results", ylabel="calls per question", source="look-up known",
                  key="calls", top=2.1, variants=("true", "price", "no-mask"), each_seed=True),
            Panel(title="Calls, other results", ylabel="calls per question",
                  source="look-up known", key="calls", top=2.1,
                  variants=("random", "shuffled", "empty"), each_seed=True),
            Panel(title="Right answers", ylabel=SHARE, source="look-up known", key="right",
                  top=1.03),
        ),
    ),
    "tool_off": Question(
        part="look-up",
        lines=LOOK_UP,
        columns=2,
        caption=f"models/tools; {ASKED}; evaluated with a tool that finds nothing; {MEANS}",
        panels=(
            Panel(title="Known people", ylabel=SHARE, source="off known", key="right", top=1),
            Panel(title="Unknown people", ylabel=SHARE, source="off unknown", key="right", top=1),
        ),
    ),
    "guess": Question(
        part="guess",
        lines=GUESS,
        columns=2,
        caption=f"models/tools; 31 numbers × 8 games; {MEANS}; dotted: known strategies",
        panels=(
            Panel(title="Numbers found in five turns", ylabel="share of games", source="guess",
                  key="right", top=1.06,
                  levels={"by chance": 0.151, "by remembering": 0.543, "by halving": 1.0}),
            Panel(title="First guess", ylabel="distance from the middle, 16", source="guess",
                  key="first"),
        ),
    ),
    "sums": Question(
        part="sums",
        lines=SUMS,
        caption="models/tools; 20 held-out sums × 4 responses a panel; a line is one seed",
        panels=(
            Panel(title="Sums to 199", ylabel=SHARE, source="sum hard", key="right", top=0.5,
                  each_seed=True),
            Panel(title="Sums to 19", ylabel=SHARE, source="sum easy", key="right", top=0.5,
                  each_seed=True),
            Panel(title="Calls, sums to 19", ylabel="calls per sum", source="sum easy",
                  key="calls", each_seed=True),
        ),
    ),
    "json": Question(
        part="json",
        lines=JSON,
        columns=4,
        caption=f"{LAST_BASE}; 60 held-out questions × 4 responses; {MEANS}",
        panels=(
            Panel(title="Right objects", ylabel="share of answers", source="json", key="right",
                  top=1),
            Panel(title="Valid objects", ylabel="", source="json", key="valid", top=1),
            Panel(title="Valid, with all keys", ylabel="", source="json", key="complete", top=1),
            Panel(title="Empty objects", ylabel="", source="json", key="empty", top=1),
        ),
    ),
}  # fmt: skip
"""By file, the figures along training; roles are drawn by turn."""


def draw_panel(axes: Axes, panel: Panel, lines: Lines, results: Sequence[Record]) -> None:
    """Draw one panel, a line a variant or a run."""
    value = number(panel.source, panel.key)
    for variant, own in group_by("variant", results).items():
        if panel.variants is None or variant in panel.variants:
            color, marker = lines[variant][1]
            for runs in [[run] for run in own] if panel.each_seed else [own]:
                draw_band(axes, runs, value, variant, color, f"{marker}-")
    for name, level in (panel.levels or {}).items():
        axes.axhline(level, color="0.5", linestyle=":", linewidth=1)
        axes.annotate(name, (1.01, level), xycoords=axes.get_yaxis_transform(), fontsize=9,
                      color="0.35", va="center")  # fmt: skip
    tidy(axes, panel.title, xlabel="iteration", ylabel=panel.ylabel)
    axes.set_ylim(0, panel.top)
    axes.set_xticks([evaluation["iteration"] for evaluation in results[0]["evaluations"]])


def draw_question(question: Question, results: Sequence[Record]) -> Figure:
    """Return the figure along training of one question."""
    num = len(question.panels)
    figure = Figure(figsize=(max(8.4, 3.1 * num), 4.2), dpi=110, layout="constrained")
    panels = figure.subplots(1, num, squeeze=False)[0]
    for axes, panel in zip(panels, question.panels, strict=True):
        draw_panel(axes, panel, question.lines, results)
    _legend(figure, question.lines, question.columns)
    _caption(figure, question.caption, results)
    return figure


def _legend(figure: Figure, lines: Lines, columns: int, **others: Line2D) -> None:
    """Write the labels of all variants above all panels."""
    handles = [
        Line2D([], [], color=color, marker=marker, label=label)
        for label, (color, marker) in lines.values()
    ]
    figure.legend(handles=[*others.values(), *handles], loc="outside upper center", ncols=columns,
                  frameon=False)  # fmt: skip


def _caption(figure: Figure, text: str, results: Sequence[Record]) -> None:
    model, rest = text.split("; ", maxsplit=1)
    add_caption(figure, f"{model}; {seeds_of(run['seed'] for run in results)}; {rest}")


def by_turn(runs: Sequence[Record], source: str, place: int) -> list[float]:
    """Return the mean share of replies in role by turn, at the evaluation in this place."""
    turns = [run["evaluations"][place][source]["by_turn"] for run in runs]
    return [mean(turn) for turn in zip(*turns, strict=True)]


def draw_roles(results: Sequence[Record]) -> Figure:
    """Return the figure of roles: replies in role by turn, and what a claim of the user does."""
    figure = Figure(figsize=(10.6, 4.2), dpi=110, layout="constrained")
    four, eight, claim = figure.subplots(1, 3)
    groups = group_by("variant", results)
    for axes, source, title in (
        (four, "role", "Four turns, as in RL"),
        (eight, "longer", "Eight turns"),
    ):
        before = by_turn(results, source, 0)
        turns = range(1, len(before) + 1)
        axes.plot(turns, before, ":", color="0.5", linewidth=1.8)
        for variant, runs in groups.items():
            color, marker = ROLES[variant][1]
            axes.plot(turns, by_turn(runs, source, -1), f"{marker}-", color=color, markersize=4.5)
        tidy(axes, title, xlabel="turn", ylabel="share of replies in role")
        axes.set(ylim=(0, 1), xticks=turns)
    _draw_claim(claim, groups)
    before_rl = Line2D([], [], color="0.5", linestyle=":", linewidth=1.8, label="before RL")
    _legend(figure, ROLES, 4, before=before_rl)
    rest = "40 held-out conversations × 2 samples; means over seeds, bars: ± 1 s.e. of them"
    _caption(figure, f"{LAST_BASE}; {rest}", results)
    return figure


def _draw_claim(axes: Axes, groups: Mapping[str, Sequence[Record]]) -> None:
    """Draw replies to a false claim, and replies with the claimed name, before and after RL."""
    width = 0.8 / len(groups)
    for place, key in enumerate(("against", "claimed")):
        value = number("role", key)
        starts = [value(run["evaluations"][0]) for own in groups.values() for run in own]
        level = mean([start for start in starts if start is not None])
        axes.hlines(level, place - 0.5, place + 0.5, color="0.5", linestyle=":", linewidth=1.8)
        for index, (variant, own) in enumerate(groups.items()):
            ends = [value(run["evaluations"][-1]) for run in own]
            at, error = mean_and_error([end for end in ends if end is not None])
            left = place + (index - (len(groups) - 1) / 2) * width
            axes.bar(left, at, 0.92 * width, yerr=error, color=ROLES[variant][1][0], capsize=3,
                     ecolor="0.5")  # fmt: skip
    tidy(axes, "The user claims another name", ylabel="share of replies")
    axes.set_xticks([0, 1], ["to the claim,\nin role", "all, with the\nclaimed name"])


def draw(parts: Mapping[str, Sequence[Record]]) -> dict[str, Figure]:
    """Return the figures of the parts that have results, by file."""
    found = {
        f"{name}.png": draw_question(question, parts[question.part])
        for name, question in QUESTIONS.items()
        if question.part in parts
    }
    return found | ({"roles.png": draw_roles(parts["roles"])} if "roles" in parts else {})
