"""Page of slow evaluation: seconds of an iteration, how much is waited for, and accuracy."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from experiments.curves import COLORS, legend_above
from experiments.study import Study
from experiments.tables import Column, ends, group_by, number, table_by
from r1lit.callbacks.figures import add_caption, seeds_of, tidy
from r1lit.files import Record, read_records
from r1lit.metrics import mean

NUMBERS = {
    "waited_s": "time/grade_s",
    "rollout_s": "time/rollout_s",
    "update_s": "time/update_s",
}
"""Means over a run's iterations after the first, by what the page calls them."""


def read(study: Study) -> list[Record]:
    """Return each finished point, with the mean times of its iterations."""
    found = []
    for result, folder in study.sweep().runs():
        lines = read_records(folder / "metrics.jsonl")
        lines = [line for line in lines if "time/grade_s" in line]
        times = {name: mean([line[key] for line in lines[1:]]) for name, key in NUMBERS.items()}
        times["iteration_s"] = (lines[-1]["seconds"] - lines[0]["seconds"]) / (len(lines) - 1)
        delay, staleness = result["variant"].split("+")
        kept = {key: result[key] for key in ("variant", "seed", "evaluations")}
        place = {"delay_s": int(delay[1:]), "staleness": int(staleness[1:])}
        found.append({**kept, **place, **times})
    return found


def as_table(results: Sequence[Record]) -> str:
    """Return a row a variant, as Markdown."""
    columns: list[Column] = [
        ("seconds from one iteration to the next", number("iteration_s"), ".1f"),
        ("waited for verdicts", number("waited_s"), ".1f"),
        ("rollout", number("rollout_s"), ".1f"),
        ("update", number("update_s"), ".1f"),
        ("right", ends("pass_at_1"), ".3f"),
    ]
    return table_by("variant", results, columns, "variant")


def draw(results: Sequence[Record]) -> Figure:
    """Return the figure: time and accuracy by the delay of verdicts, a bar a staleness."""
    figure = Figure(figsize=(9.6, 4), dpi=110, layout="constrained")
    waits, accuracy = figure.subplots(1, 2)
    delays = sorted(group_by("delay_s", results))
    groups = sorted(group_by("staleness", results).items())
    width = 0.84 / len(groups)
    for index, (staleness, own) in enumerate(groups):
        for axes, value, form in (
            (waits, lambda run: run["waited_s"], "%.1f"),
            (accuracy, lambda run: run["evaluations"][-1]["pass_at_1"], "%.2f"),
        ):
            runs = group_by("delay_s", own)
            places = [delays.index(delay) + (index - (len(groups) - 1) / 2) * width
                      for delay in runs]  # fmt: skip
            heights = [mean([value(run) for run in its]) for its in runs.values()]
            color, label = COLORS[index], f"max_staleness: {staleness}"
            bars = axes.bar(places, heights, 0.92 * width, color=color, label=label)
            axes.bar_label(bars, fmt=form, padding=2, fontsize=9)
    before = mean([run["evaluations"][0]["pass_at_1"] for run in results])
    accuracy.axhline(before, color="0.4", linestyle=":", label="before training")
    tidy(waits, "Waiting for verdicts", ylabel="seconds an iteration waits")
    tidy(accuracy, "Accuracy after 8 iterations", ylabel="pass@1 on held-out repositories")
    for axes in (waits, accuracy):
        axes.set_xticks(range(len(delays)), [f"{delay} s" for delay in delays])
        axes.set_xlabel("delay of each verdict")
        axes.margins(y=0.08)
        axes.grid(visible=False, axis="x")
    legend_above(figure, accuracy)
    add_caption(figure, f"{seeds_of(run['seed'] for run in results)}; 32 held-out repositories × 4"
                " trajectories; waiting: means over iterations after the first")  # fmt: skip
    return figure


def report(results: Sequence[Record]) -> tuple[str, Figure]:
    """Return table and figure."""
    text = "A row is a delay of `s` seconds and a `max_staleness` of `k`; means over seeds."
    return f"{text}\n\n{as_table(results)}", draw(results)
