"""Page of scaling: sigmoids fitted to each run, their asymptotes, and what half a run predicts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from matplotlib.figure import Figure

from experiments.curves import read_curves, style_of
from experiments.scaling.fit import extrapolate, fit_sigmoid
from experiments.study import Study
from experiments.tables import group_by, seed_table, table_by
from r1lit.callbacks.figures import tidy
from r1lit.files import Record
from r1lit.metrics import mean
from r1lit.metrics.seeds import shift_over_seeds

SEEN = 0.5  # of the compute, by the fits that predict the rest


def read(study: Study) -> list[Record]:
    """Return each finished point with its curve of pass@1 over tokens."""
    return read_curves(study.sweep())


def as_table(results: Sequence[Record]) -> str:
    """Return the Markdown: a row a recipe, over its seeds, and asymptotes compared in pairs."""
    fits = {id(r): (fit_sigmoid(r["curve"]), *extrapolate(r["curve"], SEEN)) for r in results}
    columns = [
        ("asymptote A", lambda r: fits[id(r)][0].asymptote, ".3f"),
        ("C_mid, M tokens", lambda r: fits[id(r)][0].midpoint / 1e6, ".3f"),
        ("exponent B", lambda r: fits[id(r)][0].exponent, ".2f"),
        ("pass@1 at the end", lambda r: r["curve"][-1][1], ".3f"),
        (f"A from the first {SEEN:.0%}", lambda r: fits[id(r)][1].asymptote, ".3f"),
        (
            "its distance from A",
            lambda r: abs(fits[id(r)][1].asymptote - fits[id(r)][0].asymptote),
            ".3f",
        ),
        ("distance of the rest", lambda r: fits[id(r)][2], ".3f"),
        ("an evaluation's s.e.", _mean_error, "mean .3f"),
    ]
    asymptotes = {
        recipe: {r["seed"]: fits[id(r)][0].asymptote for r in group}
        for recipe, group in group_by("variant", results).items()
    }
    return table_by("variant", results, columns, "recipe") + compared(asymptotes)


def _mean_error(run: Record) -> float:
    return mean([e["pass_at_1_stderr"] for e in run["evaluations"]])


def compared(asymptotes: dict[str, dict[int, float]]) -> str:
    """Return the table of differences of asymptotes, a row a pair of recipes."""
    found = [
        ([f"A of {other} less {one}"], shift)
        for one, other in combinations(asymptotes, 2)
        if (shift := shift_over_seeds(asymptotes[other], asymptotes[one])) is not None
    ]
    return f"\n\n{seed_table(found, ['difference of recipes'])}" if found else ""


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
