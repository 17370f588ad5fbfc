"""Curves of held-out responses by the source of their problems, of the finished points of a sweep.

A study names its measures (see `Measures`); `read` and `report` make its own of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from experiments.curves import legend_above, style_of
from experiments.sweep import Sweep
from experiments.tables import Column, by_seed, group_by, seed_table, table_by
from r1lit.callbacks.figures import tidy
from r1lit.files import Record, read_existing
from r1lit.metrics import mean, mean_and_error

Value = Callable[[Record], float]
Measures = Mapping[str, tuple[Callable[[str], bool], Value]]
"""By title: whether a source of problems belongs to it, and the number of a response."""


def reward(name: str) -> Value:
    """Return what reads a reward of a response, weighted or not."""
    return lambda response: response["rewards"][name]


def is_right(response: Record) -> float:
    """Return 1 for a right response, 0 for a wrong one."""
    return float(response["value"])


def evaluations(records: Iterable[Record]) -> dict[int, list[Record]]:
    """Return the evaluated responses by the iterations that were finished.

    Raises:
        ValueError: if they are not a training run's.
    """
    found: dict[int, list[Record]] = {}
    for record in records:
        if "split" not in record:
            raise ValueError("run: its responses.jsonl is not of a training run")
        if record["split"] == "val":
            found.setdefault(record["iteration"], []).append(record)
    return dict(sorted(found.items()))


def evaluated_in(run: Path) -> dict[int, list[Record]]:
    """Return the evaluated responses of a run folder by iteration."""
    return evaluations(read_existing(run / "responses.jsonl", "run"))


def read(sweep: Sweep, measures: Measures) -> list[Record]:
    """Return each finished point with its ``curves``: by measure, a value an evaluation.

    Raises:
        ValueError: if no point is finished, or an evaluation asked nothing that a measure is of.
    """
    found = []
    for result, folder in sweep.finished():
        evaluated = evaluated_in(folder)
        curves: dict[str, list[tuple[int, float]]] = {}
        for name, (is_of, value) in measures.items():
            curves[name] = []
            for iteration, responses in evaluated.items():
                values = [value(r) for r in responses if is_of(r["source"])]
                if not values:
                    raise ValueError(f"{folder}: iteration {iteration} asked nothing for {name!r}")
                curves[name].append((iteration, mean(values)))
        kept = {key: result[key] for key in ("variant", "seed", "seconds")}
        found.append({**kept, "curves": curves})
    return found


def as_table(results: Sequence[Record], axis: str) -> str:
    """Return the Markdown table: before → highest → after, mean ± standard error over seeds.

    Args:
        results: as `read` returns them.
        axis: what variants differ in, the heading of the first column.
    """

    def of(name: str, pick: Callable[[list[float]], float]) -> Callable[[Record], float]:
        return lambda result: pick([value for _, value in result["curves"][name]])

    columns: list[Column] = [
        (name, (of(name, lambda c: c[0]), of(name, max), of(name, lambda c: c[-1])), ".2f")
        for name in results[0]["curves"]
    ]
    columns.append(("seconds", lambda result: result["seconds"], ".0f"))
    return table_by("variant", results, columns, axis)


def draw(results: Sequence[Record], ylabels: Mapping[str, str]) -> Figure:
    """Return the figure: a panel a measure, a line a variant, two standard errors over seeds."""
    measures = list(results[0]["curves"])
    figure = Figure(figsize=(13, 7), dpi=110, layout="constrained")
    panels = figure.subplots(2, -(-len(measures) // 2), squeeze=False).flat
    for axes, name in zip(panels, measures, strict=False):
        for index, (variant, group) in enumerate(group_by("variant", results).items()):
            x = [iteration for iteration, _ in group[0]["curves"][name]]
            own = [[value for _, value in result["curves"][name]] for result in group]
            y = [mean_and_error(values) for values in zip(*own, strict=True)]
            bars = [2 * (error or 0.0) for _, error in y]
            color, marker, line = style_of(index)
            axes.errorbar(x, [m for m, _ in y], bars, color=color, marker=marker, linestyle=line,
                          markersize=4, capsize=2, label=variant)  # fmt: skip
        tidy(axes, name[0].upper() + name[1:], xlabel="iteration", ylabel=ylabels[name])
    for axes in figure.axes[len(measures) :]:
        axes.remove()
    legend_above(figure, figure.axes[0])
    return figure


def differences(results: Sequence[Record]) -> str:
    """Return what each variant ends at less the first variant, by measure, as Markdown.

    By the rule of every page; nothing where fewer than two variants have two seeds.
    """
    groups = {v: own for v, own in group_by("variant", results).items() if len(own) > 1}
    first = next(iter(groups), "")

    def at_the_end(name: str, run: Record) -> float:
        return float(run["curves"][name][-1][1])

    found = [
        ([variant, name], by_seed(own, groups[first], partial(at_the_end, name)))
        for variant, own in groups.items()
        if variant != first
        for name in own[0]["curves"]
    ]
    return seed_table(found, [f"less {first}", "measure"])


def report(results: Sequence[Record], axis: str, ylabels: Mapping[str, str]) -> tuple[str, Figure]:
    """Return the Markdown and the figure of a study whose variants differ in ``axis``.

    ``ylabels`` has by measure what its numbers are.
    """
    said = (
        "Held out, before → highest → after the last iteration; mean ± standard error over seeds."
    )
    parts = (said, as_table(results, axis), differences(results))
    return "\n\n".join(part for part in parts if part), draw(results, ylabels)
