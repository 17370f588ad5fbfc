"""Page of the two arms: a row and a bar an arm and seed, intervals over held-out problems."""

from __future__ import annotations

import json
from collections.abc import Sequence
from statistics import fmean

from matplotlib.figure import Figure

from experiments.curves import draw_bars
from experiments.manifest import seconds_by_step
from experiments.real_stages.report import gain
from experiments.study import Study
from experiments.tables import as_markdown, over_problems, with_interval
from r1lit.callbacks.figures import add_caption, seeds_of, tidy
from r1lit.evaluation.compare import shares_right
from r1lit.files import Record, read_records

ARMS = {"base": "base", "distilled": "distilled", "rl": "RL"}


def read(study: Study) -> list[Record]:
    """Return what each finished arm of each seed was measured to do."""
    records = []
    for seed, run in zip(study.seeds, study.runs, strict=True):
        seconds = seconds_by_step(run)
        for arm in ARMS:
            folder, compute = run / f"{arm}_evaluation", run / arm / "compute.json"
            if f"{arm}_evaluation" not in seconds:
                continue
            report = json.loads((folder / "report.json").read_text())
            responses = read_records(folder / "responses.jsonl")
            records.append({
                "arm": arm, "seed": seed, "seconds": seconds.get(arm),
                "compute": json.loads(compute.read_text()) if compute.exists() else None,
                "pass_at_1": report["pass_at_1"], "shares": shares_right(folder),
                "tokens": report["response_length"]["mean"], "truncated": report["truncated"],
                "boxed": fmean("\\boxed" in r["response"] for r in responses),
                "read": fmean(r["status"] in ("right", "wrong") for r in responses),
            })  # fmt: skip
    return records


def as_table(results: Sequence[Record]) -> str:
    """Return the table of a row an arm and seed, with the difference to the base."""
    bases = {r["seed"]: r for r in results if r["arm"] == "base"}
    rows = []
    for r in results:
        value, spent, base = r["pass_at_1"], r["compute"], bases[r["seed"]]
        rows.append([
            ARMS[r["arm"]], str(r["seed"]),
            f"{value['value']:.3f} ({value['low']:.3f} to {value['high']:.3f})",
            "–" if r is base else gain(r["shares"], base["shares"]),
            f"{r['tokens']:.0f}", *(f"{r[key]:.2f}" for key in ("truncated", "boxed", "read")),
            "–" if spent is None else f"{spent['flops'] / 1e13:.2f}",
            "–" if spent is None else str(spent["updates"]),
            "–" if r["seconds"] is None else f"{r['seconds']:.0f}",
        ])  # fmt: skip
    headings = [
        "arm", "seed", "pass@1", "less the base", "tokens", "cut", "boxed", "answers read",
        "10^13 FLOPs", "updates", "seconds of training",
    ]  # fmt: skip
    return as_markdown(headings, rows, num_text=2)


def between_arms(results: Sequence[Record]) -> str:
    """Return what distillation gives over RL, with its interval over problems, seeds averaged."""
    arms = ([r["shares"] for r in results if r["arm"] == arm] for arm in ("distilled", "rl"))
    less = over_problems(*arms)
    if less is None:
        return ""
    return (
        f"Distilled less RL, means of the seeds, over {less.num_problems} problems:"
        f" {with_interval(less)}."
    )


def draw(results: Sequence[Record]) -> Figure:
    """Return the figure: pass@1 of each arm, a bar a seed, with 95 % intervals over problems."""
    figure = Figure(figsize=(6, 3.4), dpi=110, layout="constrained")
    axes = figure.subplots()
    draw_bars(axes, results, "arm", list(ARMS))
    axes.set_xticks(range(len(ARMS)), list(ARMS.values()))
    tidy(axes, "Short problems of GSM8K", ylabel="pass@1 on held-out problems")
    seeds = seeds_of({r["seed"] for r in results})
    add_caption(figure, f"SmolLM2-135M-Instruct, {seeds}; bars: 95 % intervals over problems")
    return figure


def report(results: Sequence[Record]) -> tuple[str, Figure]:
    """Return the table, the difference of the arms, and the figure."""
    return "\n\n".join(filter(None, (as_table(results), between_arms(results)))), draw(results)
