"""Page of the real model's stages: a row and a bar a stage, intervals over held-out problems."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from matplotlib.figure import Figure

from experiments.curves import COLORS
from experiments.manifest import finished_steps
from experiments.study import Study
from experiments.tables import as_markdown
from r1lit.callbacks.figures import add_caption, seeds_of, tidy
from r1lit.files import Record, read_records
from r1lit.metrics import paired_difference

STAGES = {
    "base": "base",
    "cold_start": "cold start",
    "rl": "reasoning RL",
    "sft": "rejection sampling + SFT",
}
FAMILIES = ("sums", "differences")


def read(study: Study) -> list[Record]:
    """Return what each finished stage of each seed was measured to do."""
    records = []
    for seed, run in zip(study.seeds, study.runs, strict=True):
        for stage in STAGES:
            if f"{stage}_evaluation" in finished_steps(run):
                losses = read_losses(run / stage / "summary.json")
                records.append({"stage": stage, "seed": seed, **losses,
                                **measured(run / f"{stage}_evaluation")})  # fmt: skip
    return records


def read_losses(summary: Path) -> Record:
    """Return the held-out loss of a supervised stage before and after it, if it is one."""
    evaluations = json.loads(summary.read_text()) if summary.exists() else []
    losses = [e["loss"] for e in evaluations if e.get("loss") is not None]
    return {"held_out_loss": [losses[0], losses[-1]] if losses else None}


def measured(folder: Path) -> Record:
    """Return an evaluation's numbers, by problem too, and its first response to some problems."""
    report = json.loads((folder / "report.json").read_text())
    responses = read_records(folder / "responses.jsonl")
    by_problem: dict[str, list[float]] = {}
    shown = {}
    for r in sorted(responses, key=lambda r: r["sample"]):
        by_problem.setdefault(r["uid"], []).append(r["value"])
        shown.setdefault(r["uid"], r["response"][:200])
    return {
        "pass_at_1": report["pass_at_1"],
        "by_source": {s: report["by"]["source"][s]["value"] for s in FAMILIES},
        "shares": {uid: fmean(values) for uid, values in by_problem.items()},
        "tokens": report["response_length"]["mean"],
        "truncated": report["truncated"],
        "read": fmean(r["status"] in ("right", "wrong") for r in responses),
        "thinks": fmean(r["response"].lstrip().startswith("<think>") for r in responses),
        "responses": {uid: shown[uid] for uid in sorted(shown)[:4]},
    }


def as_table(results: Sequence[Record]) -> str:
    """Return the Markdown table: a row a stage and seed, with the difference to the base."""
    bases = {r["seed"]: r for r in results if r["stage"] == "base"}
    rows = []
    for r in results:
        value, base = r["pass_at_1"], bases[r["seed"]]["shares"]
        less = paired_difference([r["shares"][uid] for uid in base], list(base.values()))
        gain = f"{less.mean:+.3f} ({less.low:+.2f} to {less.high:+.2f})"
        loss = r["held_out_loss"]
        rows.append([
            STAGES[r["stage"]], str(r["seed"]),
            f"{value['value']:.3f} ({value['low']:.2f} to {value['high']:.2f})",
            "–" if r["stage"] == "base" else gain,
            *(f"{r['by_source'][s]:.2f}" for s in FAMILIES),
            *(f"{r[key]:.2f}" for key in ("read", "thinks", "truncated")), f"{r['tokens']:.0f}",
            "–" if loss is None else f"{loss[0]:.3f} → {loss[1]:.3f}",
        ])  # fmt: skip
    headings = [
        "stage", "seed", "pass@1", "less the base", *FAMILIES, "answers read",
        "begin with `<think>`", "cut", "tokens", "loss on held-out traces",
    ]  # fmt: skip
    return as_markdown(headings, rows, num_text=2)


def draw(results: Sequence[Record]) -> Figure:
    """Return the figure: pass@1 of each stage with its 95 % interval over problems."""
    figure = Figure(figsize=(7, 3.6), dpi=110, layout="constrained")
    axes = figure.subplots()
    for place, r in enumerate(results):
        at = r["pass_at_1"]
        error = [[at["value"] - at["low"]], [at["high"] - at["value"]]]
        color = COLORS[list(STAGES).index(r["stage"])]
        axes.bar(place, at["value"], yerr=error, capsize=4, color=color, zorder=2)
    axes.set_xticks(range(len(results)), [STAGES[r["stage"]] for r in results], fontsize=9)
    tidy(axes, "Sums and differences", ylabel="pass@1 on held-out problems")
    seeds = seeds_of(r["seed"] for r in results)
    add_caption(figure, f"SmolLM2-135M-Instruct, {seeds}; bars: 95 % intervals over problems")
    return figure


def report(results: Sequence[Record]) -> tuple[str, Figure]:
    """Return the table and the figure."""
    return as_table(results), draw(results)
