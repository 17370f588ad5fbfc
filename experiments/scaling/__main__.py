"""Trains three recipes, fits a sigmoid to each run, and reports asymptotes and efficiencies.

    python -m experiments.scaling [sweep.yaml] [--seeds 0,1] [--report]

A sweep (`experiments.sweep`): finished points are skipped, an interrupted one goes on. At the end
the table of README.md and scaling.png are made; ``--report`` makes them of what is there.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from experiments.against_tokens import read_curves
from experiments.curves import style_of
from experiments.measures import group_by, mean_cell
from experiments.page import as_markdown
from experiments.scaling.fit import extrapolate, fit_sigmoid
from experiments.study import run_study
from experiments.sweep import Launch, in_subprocess
from r1lit.callbacks.figures import tidy
from r1lit.files import Record
from r1lit.metrics import mean, paired_shift

HERE = Path(__file__).parent
SEEN = 0.5  # of the compute, by the fits that predict the rest


def as_table(results: Sequence[Record]) -> str:
    """Return the Markdown: a row a recipe, over its seeds, and asymptotes compared in pairs."""
    names = ["recipe", "n seeds", "asymptote A", "C_mid, M tokens", "exponent B"]
    names += ["pass@1 at the end", f"A from the first {SEEN:.0%}", "its distance from A"]
    names += ["distance of the rest", "an evaluation's s.e."]
    rows = []
    asymptotes: dict[str, dict[int, float]] = {}
    for recipe, group in group_by("variant", results).items():
        fits = [fit_sigmoid(result["curve"]) for result in group]
        early = [extrapolate(result["curve"], SEEN) for result in group]
        errors = [mean([e["pass_at_1_stderr"] for e in result["evaluations"]]) for result in group]
        asymptotes[recipe] = {r["seed"]: f.asymptote for r, f in zip(group, fits, strict=True)}
        cells = [recipe, str(len(group)), mean_cell([f.asymptote for f in fits], ".3f")]
        cells.append(mean_cell([f.midpoint / 1e6 for f in fits], ".3f"))
        cells.append(mean_cell([f.exponent for f in fits], ".2f"))
        cells.append(mean_cell([result["curve"][-1][1] for result in group], ".3f"))
        cells.append(mean_cell([f.asymptote for f, _ in early], ".3f"))
        pairs = zip(early, fits, strict=True)
        cells.append(mean_cell([abs(e.asymptote - f.asymptote) for (e, _), f in pairs], ".3f"))
        cells.append(mean_cell([distance for _, distance in early], ".3f"))
        cells.append(mean_cell(errors, ".3f", error=False))
        rows.append(cells)
    return as_markdown(names, rows) + compared(asymptotes)


def compared(asymptotes: dict[str, dict[int, float]]) -> str:
    """Return a sentence a pair of recipes: the difference of their asymptotes, paired by seed."""
    lines = []
    for one, other in combinations(asymptotes, 2):
        seeds = sorted(asymptotes[one].keys() & asymptotes[other].keys())
        if len(seeds) < 2:
            continue
        shift = paired_shift([asymptotes[other][s] - asymptotes[one][s] for s in seeds])
        lines.append(
            f"- A of {other} less {one}: {shift.mean:+.3f}, 95 % interval {shift.low:+.3f} to"
            f" {shift.high:+.3f} over {len(seeds)} seeds."
        )
    return "\n\n" + "\n".join(lines) if lines else ""


def draw(results: Sequence[Record]) -> Figure:
    """Return the figure: a panel a recipe, each run's evaluations with the fit of its beginning."""
    groups = group_by("variant", results)
    figure = Figure(figsize=(4.2 * len(groups), 3.8), dpi=120, layout="constrained")
    panels = figure.subplots(1, len(groups), sharey=True, squeeze=False)[0]
    for axes, (recipe, group) in zip(panels, groups.items(), strict=True):
        for index, result in enumerate(group):
            color, marker, _ = style_of(index)
            compute, reward = np.array(result["curve"]).T
            fitted, _ = extrapolate(result["curve"], SEEN)
            label = f"seed {result['seed']}"
            axes.plot(compute / 1e6, reward, marker, color=color, markersize=4, label=label)
            for start, end, style in ((0.0, SEEN, "-"), (SEEN, 1.0, "--")):
                x = np.linspace(start, end, 50) * compute[-1]
                axes.plot(x / 1e6, [fitted.at(c) for c in x], style, color=color, linewidth=1.2)
        tidy(axes, recipe, xlabel="tokens generated, millions")
        axes.legend(frameon=False, loc="lower right", fontsize=9)
    panels[0].set(ylabel="pass@1, held out", ylim=(0, 1))
    return figure


def report(results: Sequence[Record]) -> tuple[str, Figure]:
    """Return table and figure."""
    text = "Lines are fitted to the first half of a run's compute; dashed, they predict the rest."
    return f"{as_table(results)}\n\n{text}", draw(results)


def main(args: Sequence[str] | None = None, launch: Launch = in_subprocess) -> int:
    """Run the command; return its exit status: 1 if a point failed, 2 for bad input."""
    return run_study(args, HERE, report, "scaling.png", read=read_curves, launch=launch)


if __name__ == "__main__":
    sys.exit(main())
