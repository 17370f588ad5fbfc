"""Accuracy and thinking tokens by difficulty: by stage, and over R1-Zero's training.

The paper's are MATH's levels (Fig. 8) and LiveCodeBench's (Table 14). Here difficulty is how many
attempts the whole search of a Countdown problem has, how many steps a chain has, how many
operations a program is told, and, for a program from examples alone, how large the factor is that
has to be found. All can be read from a problem's uid.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.by_source import evaluations
from experiments.curves import legend_above, style_of
from experiments.paper.tables import Cell, Table, Tables
from experiments.r1.stages import EVALUATED, Group, read_groups
from experiments.r1.table import TITLES
from r1lit.callbacks.figures import add_caption, tidy
from r1lit.evaluation.records import by_problem
from r1lit.files import read_records
from r1lit.metrics import Graded, mean, mean_and_error, share_right
from r1lit.policy import load_tokenizer
from r1lit.text.extract import thinking_and_answer
from r1lit.worlds.countdown import branches

LEVELS = {
    "Countdown": ((20, 29), (30, 34), (35, 36), (37, 46)),  # attempts of a whole search
    "chain": ((4, 5), (6, 8)),  # steps
    "program": ((1, 1), (2, 2), (3, 3)),  # operations that the question tells
    "examples": ((2, 3), (4, 6), (7, 9)),  # the factor, of a program that is told by examples
}
RIGHT, THINKING = "pass@1 by difficulty", "Thinking tokens by difficulty"
TRAINING = ", R1-Zero's training"


def difficulty(uid: str) -> tuple[str, int] | None:
    """Return the family of a problem and its difficulty; None of other problems.

    >>> difficulty("countdown-3-5-12-24"), difficulty("chain-7+5*3-8"), difficulty("who-en-0-3")
    (('Countdown', 30), ('chain', 3), None)
    >>> difficulty("program-f(x):plus3,times2"), difficulty("program-f(x):f(2)=7,f(3)=9")
    (('program', 2), ('examples', 2))
    """
    family, _, rest = uid.partition("-")
    if family == "countdown":
        *numbers, _ = map(int, rest.split("-"))
        return "Countdown", sum(len(attempts) for _, attempts in branches(tuple(numbers)))
    if family == "program":
        shown = [(int(x), int(y)) for x, y in re.findall(r"f\((\d+)\)=(-?\d+)", rest)]
        if shown:
            (x, first), (after, second) = shown[:2]
            return "examples", (second - first) // (after - x)
        return "program", len(re.findall(r"plus|minus|times", rest))
    return ("chain", sum(c in "+-*/" for c in rest)) if family == "chain" else None


def measure(run: Path, tokenizer: str) -> Tables:
    """Return the tables of a run: pass@1 and thinking tokens, each by stage and over training.

    The error is over problems. Tables of thinking tokens have their slope too: tokens an attempt,
    or a step, more.
    """
    encode = load_tokenizer(tokenizer).encode

    def thinking(group: Group) -> float:
        texts = [thinking_and_answer(record["response"])[0] for record in group]
        return mean([len(encode(text, add_special_tokens=False)) for text in texts])

    read = {TITLES[name]: read_groups(run / "eval" / name) for name in EVALUATED}
    stages = {title: [*kinds["reasoning"], *kinds["programs"]] for title, kinds in read.items()}
    responses = read_records(run / "zero" / "responses.jsonl")
    training: dict[str, list[Group]] = {
        f"iteration {iteration}": list(by_problem(records).values())
        for iteration, records in evaluations(responses).items()
    }
    tables: Tables = {}
    for end, rows in (("", stages), (TRAINING, training)):
        tables[RIGHT + end] = _table(rows, _right, slope=False)
        tables[THINKING + end] = _table(rows, thinking, slope=True)
    return {title: table for title, table in tables.items() if table}


def _right(group: Group) -> float:
    return share_right([Graded.read(record) for record in group])


def _table(rows: dict[str, list[Group]], value: Callable[[Group], float], *, slope: bool) -> Table:
    table: Table = {}
    for row, groups in rows.items():
        found: dict[str, list[tuple[int, float]]] = {family: [] for family in LEVELS}
        for group in groups:
            place = difficulty(group[0]["uid"])
            if place is not None:
                found[place[0]].append((place[1], value(group)))
        cells: dict[str, Cell] = {}
        for family, points in found.items():
            for low, high in LEVELS[family]:
                own = [y for x, y in points if low <= x <= high]
                if own:
                    cells[f"{family} {low}-{high} ({len(own)})"] = mean_and_error(own)
            if slope and len({x for x, _ in points}) > 2:
                cells[f"{family}, slope"] = slope_of(points)
        if cells:
            table[row] = cells
    return table


def slope_of(points: Sequence[tuple[float, float]]) -> Cell:
    """Return the slope of y over x by least squares, and its standard error.

    >>> [round(number, 3) for number in slope_of([(0, 0), (1, 2), (2, 1)])]
    [0.5, 0.866]
    """
    x, y = zip(*points, strict=True)
    coefficients, covariance = np.polyfit(x, y, 1, cov=True)
    return float(coefficients[0]), float(covariance[0, 0] ** 0.5)


def draw(tables: Tables, over: str) -> Figure:
    """Return the figure: accuracy and thinking tokens of Countdown, a colour for each level.

    Above by stage, below along R1-Zero's training; ``over`` says in the caption what the errors are
    over.
    """
    figure = Figure(figsize=(13, 8.4), dpi=110, layout="constrained")
    for axes_pair, end in zip(figure.subplots(2, 2), ("", TRAINING), strict=True):
        for axes, title in zip(axes_pair, (RIGHT, THINKING), strict=True):
            _panel(axes, tables.get(title + end, {}), title + end)
    first = figure.axes[0]
    if first.containers:
        legend_above(figure, first)
    add_caption(figure, f"stages from models/mini; bars: ± 2 s.e. over {over}")
    return figure


def _panel(axes: Axes, table: Table, title: str) -> None:
    columns = dict.fromkeys(c for cells in table.values() for c in cells if c[-1] == ")")
    levels = [column for column in columns if column.startswith("Countdown ")]
    for index, column in enumerate(levels):
        color, marker, _ = style_of(index)
        found = [(x, cells[column]) for x, cells in enumerate(table.values()) if column in cells]
        places = [x + 0.18 * (index - (len(levels) - 1) / 2) for x, _ in found]
        axes.errorbar(
            places, [value for _, (value, _) in found],
            [2 * (error or 0.0) for _, (_, error) in found],
            label=f"{column.split()[1]} attempts", color=color, marker=marker, markersize=6,
            capsize=3, linestyle="none",
        )  # fmt: skip
    tidy(axes, title, ylabel="pass@1" if title.startswith(RIGHT) else "tokens per response")
    names = [row.split(":")[0].replace("student's base with RL", "small\nRL") for row in table]
    axes.set_xticks(range(len(names)), [n.replace("distilled ", "distilled\n") for n in names])
