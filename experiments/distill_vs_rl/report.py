"""Page of distillation against RL: a row and a bar an arm, mean ± standard error over seeds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.curves import COLORS
from experiments.manifest import finished_steps
from experiments.study import Study
from experiments.sweep import shares_of
from experiments.tables import (
    as_markdown,
    by_seed,
    group_by,
    number,
    seed_table,
    table_by,
    with_interval,
)
from r1lit.callbacks.figures import add_caption, seeds_of, tidy
from r1lit.files import Record
from r1lit.metrics import mean, mean_and_error, paired_difference

ARMS = ("base", "base_chat", "teacher", "distilled", "rl")
FAMILIES = ("countdown", "chain")
PAPER = {"distilled": 72.6, "rl": 47.0}
"""AIME 2024 pass@1 of Qwen2.5-32B after RL, and distilled: 2501.12948v2, Table 16."""


def read(study: Study) -> list[Record]:
    """Return the evaluation and the compute of each finished arm and seed."""
    records = []
    for arm in ARMS:
        for seed, run in zip(study.seeds, study.runs, strict=True):
            if f"{arm}_evaluation" in finished_steps(run):
                compute = run / arm / "compute.json"
                spent = json.loads(compute.read_text()) if compute.exists() else None
                folder = run / f"{arm}_evaluation"
                report = json.loads((folder / "report.json").read_text())
                records.append({"arm": arm, "seed": seed, "compute": spent, "report": report,
                                "shares": shares_of(folder)})  # fmt: skip
    return records


def families(results: Sequence[Record]) -> list[str]:
    """Return the families of problems that the evaluations have."""
    return [name for name in FAMILIES if name in results[0]["report"]["by"]["source"]]


def as_table(results: Sequence[Record]) -> str:
    """Return the Markdown table: a row an arm."""
    most = max(set.intersection(*(set(r["report"]["cons_at_k"]) for r in results)), key=int)
    columns = [
        ("pass@1", number("report", "pass_at_1", "value"), ".3f"),
        *((f, number("report", "by", "source", f, "value"), ".3f") for f in families(results)),
        (f"cons@{most}", number("report", "cons_at_k", most, "value"), ".3f"),
        ("tokens per response", number("report", "response_length", "mean"), ".0f"),
        ("training FLOPs", number("compute", "flops"), ".2e"),
        ("updates", number("compute", "updates"), ".0f"),
        ("tokens learnt from", number("compute", "num_tokens"), ".0f"),
    ]
    return table_by("arm", results, columns)


def differences(results: Sequence[Record]) -> str:
    """Return the Markdown tables: distilled less RL over seeds, and by seed over its problems."""
    arms = {(r["arm"], r["seed"]): r["shares"] for r in results}
    seeds = [seed for arm, seed in arms if arm == "distilled" and ("rl", seed) in arms]
    rows = []
    for seed in sorted(seeds):
        of_rl = arms["rl", seed]
        pairs = [(uid, share, of_rl[uid]) for uid, share in arms["distilled", seed].items()]
        cells = []
        for family in ("", *families(results)):
            own = [(a, b) for uid, a, b in pairs if uid.startswith(family)]
            cells.append(with_interval(paired_difference(*map(list, zip(*own, strict=True)))))
        rows.append([str(seed), *cells])
    by_problem = as_markdown(["distilled less RL, seed", "pass@1", *families(results)], rows)
    groups = group_by("arm", results)
    distilled, rl = (groups.get(arm, []) for arm in ("distilled", "rl"))
    found = [
        ([family or "pass@1"], by_seed(distilled, rl, partial(_of_family, family)))
        for family in ("", *families(results))
    ]
    over_seeds = seed_table(found, ["distilled less RL"]) if found[0][1] else ""
    said = "Of each seed, with its 95 % interval over problems:"
    return "\n\n".join(part for part in (over_seeds, said, by_problem) if part)


def _of_family(family: str, run: Record) -> float:
    return mean([share for uid, share in run["shares"].items() if uid.startswith(family)])


def draw(results: Sequence[Record]) -> Figure:
    """Return the figure: pass@1 of every arm by family, a point a seed, and the paper's."""
    figure = Figure(figsize=(11, 4), dpi=110, layout="constrained")
    *panels, paper = figure.subplots(1, 1 + len(families(results)), sharey=True)
    arms = group_by("arm", results)
    for axes, family in zip(panels, families(results), strict=True):
        for place, (arm, group) in enumerate(arms.items()):
            values = [result["report"]["by"]["source"][family]["value"] for result in group]
            _bar(axes, place, arm, *mean_and_error(values))
            label = None if place else "a seed"
            axes.scatter([place] * len(values), values, color="black", s=14, zorder=3, label=label)
        tidy(axes, f"Small world: {family}", ylabel="pass@1 on held-out problems", ylim=(0, 1))
        axes.set_xticks(range(len(arms)), [name.replace("_", "\n") for name in arms])
    panels[0].legend(frameon=False, fontsize=9)
    for place, (arm, value) in enumerate(PAPER.items()):
        _bar(paper, place, arm, value / 100, None)
    paper.set_xticks(range(len(PAPER)), list(PAPER))
    tidy(paper, "Paper: 32B, AIME 2024", ylabel="pass@1", ylim=(0, 1))
    seeds = seeds_of(result["seed"] for result in results)
    add_caption(figure, f"models/mini_student, {seeds}; bars: mean ± 1 s.e. over seeds")
    return figure


def _bar(axes: Axes, place: int, arm: str, value: float, error: float | None) -> None:
    axes.bar(place, value, yerr=error, color=COLORS[ARMS.index(arm)], capsize=4, zorder=2)


def report(results: Sequence[Record]) -> tuple[str, Figure]:
    """Return the table and the figure."""
    num = len({result["seed"] for result in results})
    said = f"Mean ± standard error over {num} {'seed' if num == 1 else 'seeds'}."
    return f"{said}\n\n{as_table(results)}\n\n{differences(results)}", draw(results)
