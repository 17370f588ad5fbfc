"""Page of slow evaluation: seconds of an iteration, how much is waited for, and accuracy."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from experiments.curves import style_of
from experiments.study import Study
from experiments.tables import ends, group_by, number, table_by
from r1lit.callbacks.figures import tidy
from r1lit.files import Record, read_records
from r1lit.metrics import mean

NUMBERS = {
    "waited_s": "time/grade_s",
    "rollout_s": "time/rollout_s",
    "update_s": "time/update_s",
}
"""Means over a run's iterations after the first, by what the page calls them."""
ACCURACY = "right after training"


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
    columns = [
        ("seconds from one iteration to the next", number("iteration_s"), ".1f"),
        ("waited for verdicts", number("waited_s"), ".1f"),
        ("rollout", number("rollout_s"), ".1f"),
        ("update", number("update_s"), ".1f"),
        ("right", ends("pass_at_1"), ".3f"),
    ]
    return table_by("variant", results, columns, "variant")


def draw(results: Sequence[Record]) -> Figure:
    """Return the figure: time and accuracy against staleness, a line a delay."""
    figure = Figure(figsize=(9, 3.6), dpi=110, layout="constrained")
    for axes, value, label in zip(
        figure.subplots(1, 2),
        (
            lambda run: run["waited_s"],
            lambda run: run["evaluations"][-1]["pass_at_1"],
        ),
        ("seconds an iteration waits for verdicts", ACCURACY),
        strict=True,
    ):
        for index, (delay, own) in enumerate(group_by("delay_s", results).items()):
            color, marker, line = style_of(index)
            places = sorted(group_by("staleness", own).items())
            axes.plot(
                [staleness for staleness, _ in places],
                [mean([value(run) for run in runs]) for _, runs in places],
                marker + line,
                color=color,
                label=f"verdicts of {delay} s",
            )
        tidy(axes, label[0].upper() + label[1:], xlabel="max_staleness", ylabel=label)
        axes.set_ylim(bottom=0)
        axes.set_xticks([0, 1, 2])
    figure.axes[0].legend(frameon=False)
    return figure


def report(results: Sequence[Record]) -> tuple[str, Figure]:
    """Return table and figure."""
    text = "A row is a delay of `s` seconds and a `max_staleness` of `k`; means over seeds."
    return f"{text}\n\n{as_table(results)}", draw(results)
