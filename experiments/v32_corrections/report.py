"""Page of V3.2's corrections: what each saves on rollouts of one age."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from experiments.curves import style_of
from experiments.study import Study
from experiments.tables import (
    DIFFERENCE,
    OVER_SEEDS,
    RULE,
    Column,
    as_markdown,
    by_seed,
    ends,
    group_by,
    over_problems,
    seed_cells,
    table_by,
    tested_cells,
    values_of,
)
from r1lit.callbacks.figures import tidy
from r1lit.files import Record, read_records
from r1lit.metrics import mean, mean_and_error

PAIRS = (
    ("unbiased-kl", "none"),
    ("off-policy-mask", "none"),
    ("top-p", "none"),
    ("top-p-mask", "none"),
    ("top-p-mask", "top-p"),
)
"""Corrections that are compared, at each age."""
CORRECTIONS = ("none", *dict.fromkeys(ours for ours, _ in PAIRS))
_, final = ends("pass_at_1")
LOGGED = {
    "left_out": "train/off_policy",
    "num_candidates": "train/num_candidates",
    "entropy": "train/entropy",
}


def read(study: Study) -> list[Record]:
    """Return each finished point."""
    runs = study.sweep().runs()
    return [kept(result, read_records(folder / "metrics.jsonl")) for result, folder in runs]


def kept(result: Record, lines: Sequence[Record]) -> Record:
    """Return what the page needs of a run: its evaluations, and means over its iterations."""
    age, _, correction = result["variant"].partition("+")
    keys = ("iteration", "pass_at_1", "response_length_tokens")
    logged = {}
    for name, key in LOGGED.items():
        values = [line[key] for line in lines if key in line]
        logged[name] = mean(values) if values else None
    return {
        "staleness": age,
        "correction": correction,
        **{key: result[key] for key in ("seed", "seconds", "shares")},
        "evaluations": [{key: e[key] for key in keys} for e in result["evaluations"]],
        "logged": logged,
    }


def by_variant(results: Sequence[Record]) -> dict[str, list[Record]]:
    """Return the runs of each age and correction, by age, in the order of ``PAIRS``."""
    named = [{**run, "variant": f"{run['staleness']}, {run['correction']}"} for run in results]
    named.sort(
        key=lambda run: (run["staleness"], CORRECTIONS.index(run["correction"]), run["seed"])
    )
    return group_by("variant", named)


def as_table(groups: dict[str, list[Record]]) -> str:
    """Return a row an age and correction, before and after."""
    columns: list[Column] = [
        ("pass@1", ends("pass_at_1"), ".3f"),
        ("tokens per response", ends("response_length_tokens"), ".0f"),
        ("tokens left out by the mask", lambda run: run["logged"]["left_out"], "mean .3f"),
        ("candidates per token", lambda run: run["logged"]["num_candidates"], "mean .1f"),
        ("entropy", lambda run: run["logged"]["entropy"], "mean .3f"),
    ]
    runs = [run for own in groups.values() for run in own]
    return table_by("variant", runs, columns, "iterations old, correction")


def shifts_table(groups: dict[str, list[Record]]) -> str:
    """Return what each correction changes at each age, paired by seed and by problem."""
    names, seeds, problems = [], [], []
    for age in dict.fromkeys(name.partition(", ")[0] for name in groups):
        for ours, other in PAIRS:
            sides = [groups.get(f"{age}, {side}", []) for side in (ours, other)]
            common = {run["seed"] for run in sides[0]} & {run["seed"] for run in sides[1]}
            if not common:
                continue
            a, b = ([run for run in side if run["seed"] in common] for side in sides)
            names.append(f"{age}, {ours} − {other}")
            seeds.append(by_seed(a, b, final))
            problems.append(over_problems(*([run["shares"] for run in side] for side in (a, b))))
    tables = [
        as_markdown(
            ["pass@1", f"over {what}: {headings[0]}", *headings[1:]],
            [[name, *own] for name, own in zip(names, cells, strict=True)],
        )
        for what, headings, cells in (
            ("seeds", OVER_SEEDS, seed_cells(seeds)),
            ("problems", DIFFERENCE, tested_cells(problems)),
        )
    ]
    return "\n\n".join([*tables, RULE])


def draw(groups: dict[str, list[Record]]) -> Figure:
    """Return the figure: final pass@1 by age, a line a correction; each seed a dot."""
    figure = Figure(figsize=(7, 4.5), dpi=110, layout="constrained")
    axes = figure.subplots()
    for index, correction in enumerate(CORRECTIONS):
        own = {
            int(name.partition(", ")[0][1:]): values_of(runs, final)
            for name, runs in groups.items()
            if name.endswith(f", {correction}")
        }
        if not own:
            continue
        color, marker, line = style_of(index)
        moved = {age: age + 0.08 * (index - len(CORRECTIONS) / 2) for age in own}
        means = [mean_and_error(values) for values in own.values()]
        heights, errors = zip(*((value, error or 0.0) for value, error in means), strict=True)
        axes.errorbar(
            list(moved.values()), heights, errors, marker=marker, linestyle=line, color=color,
            label=correction, capsize=3,
        )  # fmt: skip
        for age, values in own.items():
            axes.plot([moved[age]] * len(values), values, ".", color=color, alpha=0.4)
    tidy(axes, "After training", xlabel="iterations between rollout and update", ylabel="pass@1")
    axes.legend(frameon=False, fontsize=8)
    return figure


def report(results: Sequence[Record]) -> tuple[str, Figure]:
    """Return tables and figure."""
    groups = by_variant(results)
    text = (
        "First evaluation → last, on 32 held-out problems with 8 responses each; mean ± standard"
        " error over seeds; the last three columns are means over a run's iterations.\n\n"
        f"{as_table(groups)}\n\nFinal pass@1 of runs of one age, over seeds and, from these"
        " very seeds, by problem; Holm's correction within each table."
        f"\n\n{shifts_table(groups)}"
    )
    return text, draw(groups)
