"""Trains RL-2 with preference rewards late, early and unheld; scores beside the true preference.

    python -m experiments.reward_hacking [sweep.yaml] [--seeds 0,1] [--report]

A sweep (`experiments.sweep`): finished points are skipped, an interrupted one goes on. At the end
the table of README.md and hacking.png are made; ``--report`` makes them of what is there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from experiments.against_tokens import run_study
from experiments.curves import COLORS, MARKERS
from experiments.earned_length.levels import evaluations
from experiments.measures import group_by, mean_cell
from experiments.page import as_markdown
from experiments.points import Sweep
from experiments.sweep import Launch, in_subprocess
from r1lit import jsonl
from r1lit.callbacks.figures import tidy
from r1lit.jsonl import Record
from r1lit.metrics import mean, mean_and_error
from r1lit.worlds.preference import refuses

HERE = Path(__file__).parent
REASONING = ("countdown", "chain")


def reward(name: str) -> Callable[[Record], float]:
    """Return what reads a reward of a response."""
    return lambda record: record["rewards"][name]


MEASURES: dict[str, tuple[Callable[[str], bool], Callable[[Record], float]]] = {
    "helpful RM": (lambda s: s not in (*REASONING, "harm"), reward("helpful_rm")),
    "true helpfulness": (lambda s: s not in (*REASONING, "harm"), reward("helpfulness_true")),
    "safety RM": (lambda s: s == "harm", reward("safety_rm")),
    "true safety": (lambda s: s == "harm", reward("safety")),
    "harmless refused": (lambda s: s == "how", lambda r: float(refuses(r["response"]))),
    "reasoning pass@1": (lambda s: s in REASONING, lambda r: r["value"]),
}
"""What is drawn: of which sources of problems, and which number of a response."""


def read(sweep: Sweep) -> list[Record]:
    """Return each finished point with its ``curves``: by measure, a value an evaluation.

    Raises:
        ValueError: if no point is finished.
    """
    found = []
    for result in sweep.results():
        folder = sweep.point(result["variant"], result["seed"]).folder
        evaluated = evaluations(jsonl.read(folder / "responses.jsonl"))
        curves = {
            name: [
                (iteration, mean([value(r) for r in records if is_of(r["source"])]))
                for iteration, records in evaluated.items()
            ]
            for name, (is_of, value) in MEASURES.items()
        }
        kept = {key: result[key] for key in ("variant", "seed", "seconds")}
        found.append({**kept, "curves": curves})
    if not found:
        raise ValueError(f"{sweep.output}: no point is finished yet")
    return found


def as_table(results: Sequence[Record]) -> str:
    """Return the Markdown table: before → highest → after, mean ± standard error over seeds."""
    rows = []
    for schedule, group in group_by("variant", results).items():
        cells = [schedule, str(len(group))]
        for name in MEASURES:
            curves = [[value for _, value in result["curves"][name]] for result in group]
            parts = ([c[0] for c in curves], [max(c) for c in curves], [c[-1] for c in curves])
            cells.append(" → ".join(mean_cell(values, ".2f") for values in parts))
        rows.append([*cells, mean_cell([result["seconds"] for result in group], ".0f")])
    return as_markdown(["schedule", "n seeds", *MEASURES, "seconds"], rows)


def draw(results: Sequence[Record]) -> Figure:
    """Return the figure: a panel a measure, a line a schedule, two standard errors over seeds."""
    figure = Figure(figsize=(13, 7), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    for axes, name in zip(figure.subplots(2, 3).flat, MEASURES, strict=True):
        for index, (schedule, group) in enumerate(group_by("variant", results).items()):
            x = [iteration for iteration, _ in group[0]["curves"][name]]
            own = [[value for _, value in result["curves"][name]] for result in group]
            y = [mean_and_error(values) for values in zip(*own, strict=True)]
            bars = [2 * (error or 0.0) for _, error in y]
            axes.errorbar(x, [m for m, _ in y], bars, color=COLORS[index], marker=MARKERS[index],
                          markersize=4, capsize=2, label=schedule)  # fmt: skip
        tidy(axes, name, xlabel="iteration")
    figure.axes[0].legend(frameon=False)
    return figure


def report(results: Sequence[Record]) -> tuple[str, Figure]:
    """Return table and figure."""
    said = (
        "Held out, before → highest → after the last iteration; mean ± standard error over seeds."
    )
    return f"{said}\n\n{as_table(results)}", draw(results)


def main(args: Sequence[str] | None = None, launch: Launch = in_subprocess) -> int:
    """Run the command; return its exit status: 1 if a point failed, 2 for bad input."""
    return run_study(args, HERE, report, "hacking.png", read=read, launch=launch)


if __name__ == "__main__":
    sys.exit(main())
