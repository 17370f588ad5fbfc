"""Page of the real model's stages: a row and a bar a stage, intervals over held-out problems."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import fmean

from matplotlib.figure import Figure

from experiments.curves import draw_bars
from experiments.manifest import seconds_by_step
from experiments.study import Study
from experiments.sweep import shares_of
from experiments.tables import as_markdown, by_seed, group_by, means_by_problem, seed_table
from r1lit.callbacks.figures import add_caption, seeds_of, tidy
from r1lit.evaluation.compare import shares_right
from r1lit.files import Record, read_records
from r1lit.metrics import paired_difference

STAGES = {
    "base": "base",
    "cold_start": "cold start",
    "rl": "reasoning RL",
    "sft": "rejection sampling + SFT",
    "preference_rl": "RL with preferences",
    "rl_alone": "RL of the base alone",
}
FAMILIES = ("sums", "differences")
MODELS = {"rewarding_model": "the model that rewards", "other_model": "the other model"}


def read(study: Study) -> list[Record]:
    """Return what each finished stage of each seed was measured to do."""
    records = []
    for seed, run in zip(study.seeds, study.runs, strict=True):
        seconds = seconds_by_step(run)
        for stage in STAGES:
            if f"{stage}_evaluation" in seconds:
                records.append({
                    "stage": stage, "seed": seed, "seconds": seconds.get(stage),
                    **read_losses(run / stage / "summary.json"),
                    **measured(run / f"{stage}_evaluation"),
                    "word_problems": shares_of(run / f"{stage}_word_problems") or {},
                    "requests": scores(run / f"{stage}_requests"),
                })  # fmt: skip
        for model in ("reward_model", "judge_model"):
            if model in seconds:
                evaluations = json.loads((run / model / "summary.json").read_text())
                records.append({"stage": model, "seed": seed, "seconds": seconds[model],
                                **evaluations[-1]["reward_model"]})  # fmt: skip
    return records


def scores(folder: Path) -> dict[str, dict[str, float]]:
    """Return by reward model the mean of its scores of each request's responses."""
    responses = read_records(folder / "responses.jsonl")
    return {model: means_by_problem(responses, partial(_score, model)) for model in MODELS}


def _score(model: str, response: Record) -> float:
    return response["eval_metrics"][model]


def read_losses(summary: Path) -> Record:
    """Return the held-out loss of a supervised stage before and after it, if it is one."""
    evaluations = json.loads(summary.read_text()) if summary.exists() else []
    losses = [e["loss"] for e in evaluations if e.get("loss") is not None]
    return {"held_out_loss": [losses[0], losses[-1]] if losses else None}


def measured(folder: Path) -> Record:
    """Return an evaluation's numbers, by problem too, and its first response to some problems."""
    report = json.loads((folder / "report.json").read_text())
    responses = read_records(folder / "responses.jsonl")
    shown: dict[str, str] = {}
    for r in sorted(responses, key=lambda r: r["sample"]):
        shown.setdefault(r["uid"], r["response"][:200])
    return {
        "pass_at_1": report["pass_at_1"],
        "by_source": {s: report["by"]["source"][s]["value"] for s in FAMILIES},
        "shares": shares_right(folder),
        "tokens": report["response_length"]["mean"],
        "truncated": report["truncated"],
        "read": fmean(r["status"] in ("right", "wrong") for r in responses),
        "thinks": fmean(r["response"].lstrip().startswith("<think>") for r in responses),
        "responses": {uid: shown[uid] for uid in sorted(shown)[:4]},
    }


def as_tables(results: Sequence[Record]) -> str:
    """Return the Markdown tables: of stages, of the reward models, of requests."""
    stages = [r for r in results if r["stage"] in STAGES]
    models = [r for r in results if r["stage"] not in STAGES]
    tables = [as_table(stages), over_seeds(stages)]
    if models:
        tables.append(table_of_models(models))
    if any(r["requests"]["other_model"] for r in stages):
        tables.append(table_of_requests(stages))
    return "\n\n".join(table for table in tables if table)


def as_table(stages: Sequence[Record]) -> str:
    """Return the table of a row a stage and seed, with the difference to the base."""
    bases = {r["seed"]: r for r in stages if r["stage"] == "base"}
    rows = []
    for r in stages:
        value, base, loss = r["pass_at_1"], bases[r["seed"]], r["held_out_loss"]
        rows.append([
            STAGES[r["stage"]], str(r["seed"]),
            f"{value['value']:.3f} ({value['low']:.2f} to {value['high']:.2f})",
            "–" if r is base else gain(r["shares"], base["shares"]),
            *(f"{r['by_source'][s]:.2f}" for s in FAMILIES),
            *(f"{r[key]:.2f}" for key in ("read", "thinks", "truncated")), f"{r['tokens']:.0f}",
            "–" if loss is None else f"{loss[0]:.3f} → {loss[1]:.3f}",
            mean_and_gain(r["word_problems"], base["word_problems"]),
            "–" if r["seconds"] is None else f"{r['seconds']:.0f}",
        ])  # fmt: skip
    headings = [
        "stage", "seed", "pass@1", "less the base", *FAMILIES, "answers read",
        "begin with `<think>`", "cut", "tokens", "loss on held-out traces",
        "word problems, less the base", "seconds of training",
    ]  # fmt: skip
    return as_markdown(headings, rows, num_text=2)


def over_seeds(stages: Sequence[Record]) -> str:
    """Return the table of each stage's pass@1 less the base's, and of two stages less RL alone."""
    groups = group_by("stage", stages)
    pairs = [(stage, "base") for stage in STAGES if stage != "base"]
    pairs += [("rl", "rl_alone"), ("sft", "rl"), ("sft", "rl_alone")]
    found = [
        ([f"{STAGES[one]} less {STAGES[other]}"], shift)
        for one, other in pairs
        if (shift := by_seed(groups.get(one, []), groups.get(other, []), _pass_at_1)) is not None
    ]
    return seed_table(found, ["pass@1"])


def _pass_at_1(run: Record) -> float:
    return float(run["pass_at_1"]["value"])


def table_of_models(models: Sequence[Record]) -> str:
    """Return the table of the reward models on held-out pairs."""
    rows = [
        [r["stage"].replace("_", " "), str(r["seed"]), str(r["num_examples"]),
         f"{r['accuracy']:.3f} ± {r['accuracy_stderr']:.3f}",
         f"{r['length_baseline_accuracy']:.3f}", f"{r['calibration_error']:.3f}",
         f"{r['seconds']:.0f}"]
        for r in models
    ]  # fmt: skip
    headings = ["model", "seed", "held-out pairs", "accuracy", "length alone", "calibration error",
                "seconds of training"]  # fmt: skip
    return as_markdown(headings, rows, num_text=2)


def table_of_requests(stages: Sequence[Record]) -> str:
    """Return the table of what both reward models make of responses to held-out requests."""
    bases = {r["seed"]: r["requests"] for r in stages if r["stage"] == "base"}
    rows = [
        [STAGES[r["stage"]], str(r["seed"]),
         *(mean_and_gain(r["requests"][m], bases[r["seed"]][m]) for m in MODELS)]
        for r in stages
        if r["requests"]["other_model"]
    ]  # fmt: skip
    headings = ["responses of", "seed", *(f"score by {name}" for name in MODELS.values())]
    return as_markdown(headings, rows, num_text=2)


def gain(values: dict[str, float], base: dict[str, float]) -> str:
    """Return the paired difference to the base with its 95 % interval over problems."""
    uids = sorted(base)
    less = paired_difference([values[uid] for uid in uids], [base[uid] for uid in uids])
    return f"{less.mean:+.3f} ({less.low:+.2f} to {less.high:+.2f})"


def mean_and_gain(values: dict[str, float], base: dict[str, float]) -> str:
    """Return the mean over problems and what it gains over the base."""
    if not values:
        return "–"
    mean = f"{fmean(values.values()):.3f}"
    return mean if values is base else f"{mean}, {gain(values, base)}"


def draw(results: Sequence[Record]) -> Figure:
    """Return the figure: pass@1 of each stage, a bar a seed, with 95 % intervals over problems."""
    figure = Figure(figsize=(10, 3.6), dpi=110, layout="constrained")
    axes = figure.subplots()
    stages = [r for r in results if r["stage"] in STAGES]
    draw_bars(axes, stages, "stage", list(STAGES))
    names = [label.replace("+ ", "+\n") for label in STAGES.values()]
    axes.set_xticks(range(len(names)), names, fontsize=9)
    tidy(axes, "Sums and differences", ylabel="pass@1 on held-out problems")
    seeds = seeds_of({r["seed"] for r in stages})
    add_caption(figure, f"SmolLM2-135M-Instruct, {seeds}; bars: 95 % intervals over problems")
    return figure


def report(results: Sequence[Record]) -> tuple[str, Figure]:
    """Return the tables and the figure."""
    return as_tables(results), draw(results)
