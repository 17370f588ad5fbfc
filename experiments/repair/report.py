"""Page of repairs: a row and a bar a stage, mean ± standard error over seeds, and RL's curves."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from experiments.by_source import evaluated_in
from experiments.curves import COLORS
from experiments.manifest import seconds_by_step
from experiments.study import Study
from experiments.tables import (
    Column,
    as_markdown,
    by_seed,
    group_by,
    means_by_problem,
    number,
    over_problems,
    seed_table,
    table_by,
    with_interval,
)
from r1lit.callbacks.figures import add_caption, seeds_of, tidy
from r1lit.files import Record, read_records
from r1lit.metrics import mean, mean_and_error

STAGES = {
    "base": "base",
    "sft": "SFT on kept trajectories",
    "coin": "RL of the base, random reward",
    "rl": "RL of the base",
    "sft_rl": "SFT, then RL",
}
RUNS = {"base": ("rl", 0), "sft": ("sft_rl", 0), "coin": ("coin", -1), "rl": ("rl", -1),
        "sft_rl": ("sft_rl", -1)}  # fmt: skip
"""By stage the run of RL that evaluates it, and which of its evaluations: the first or the last."""
RESPONSES = 64
"""Of an iteration of RL (rl.yaml)."""
CURVES = ("coin", "rl", "sft_rl")
PAIRS = (("sft", "base"), ("rl", "base"), ("rl", "sft"), ("sft_rl", "sft"), ("sft_rl", "rl"),
         ("coin", "base"))  # fmt: skip


def read(study: Study) -> list[Record]:
    """Return what each stage of each seed does with held-out repositories."""
    records = []
    for seed, run in zip(study.seeds, study.runs, strict=True):
        seconds = seconds_by_step(run)
        for stage, (name, place) in RUNS.items():
            if name not in seconds:
                continue
            evaluated = evaluated_in(run / name)
            responses = list(evaluated.values())[place]
            curve = [(at, mean([_right(r) for r in own])) for at, own in evaluated.items()]
            records.append({
                "stage": stage, "seed": seed, "seconds": seconds.get(stage),
                **behaviour(responses), **sampled(run, stage),
                "curve": curve if stage in CURVES else None,
                "shares": means_by_problem(responses, _right),
            })  # fmt: skip
    return records


def _right(response: Record) -> float:
    return float(response["status"] == "right")


def behaviour(responses: Sequence[Record]) -> dict[str, float]:
    """Return means over trajectories: of what is right, and of what the model did.

    ``tests_first`` is the share whose first call runs the tests, ``tests_again`` of those that run
    them after an edit, and ``edits`` the number of edits. ``unseen_wrong`` is the share that ends
    with all shown tests passing, at its last look, and is wrong.
    """
    found = [_of_one(response) for response in responses]
    return {key: mean([one[key] for one in found]) for key in found[0]}


def _of_one(response: Record) -> dict[str, float]:
    calls = [
        call["name"]
        for turn in response["turns"]
        if turn["role"] == "assistant"
        for call in turn.get("tool_calls") or ()
    ]
    edits = [place for place, name in enumerate(calls) if name == "edit"]
    after = calls[edits[0] + 1 :] if edits else []
    results = [turn["content"] for turn in response["turns"] if turn["role"] == "tool"]
    is_right = response["status"] == "right"
    return {
        "right": _right(response),
        "tests_first": float(calls[:1] == ["run_tests"]),
        "tests_again": float("run_tests" in after),
        "edits": float(len(edits)),
        "invalid": float(response["num_invalid"]),
        "tokens": float(response["num_tokens"]),
        "unseen_wrong": float(not is_right and bool(results) and " 0 failed" in results[-1]),
    }


def sampled(run: Path, stage: str) -> dict[str, int | None]:
    """Return how many trajectories a policy has learnt from or chosen from, and how many it kept.

    Of SFT, then RL, both count.
    """
    card = json.loads((run / "rejection_sampling" / "card.json").read_text())
    chosen = {"sft": card["num_drawn"], "sft_rl": card["num_drawn"]}.get(stage, 0)
    learnt = 0
    if stage in CURVES:
        metrics = read_records(run / stage / "metrics.jsonl")
        learnt = RESPONSES * sum("train/reward_std" in line for line in metrics)
    return {"samples": chosen + learnt, "kept": card["num_kept"] if stage == "sft" else None}


def as_table(results: Sequence[Record]) -> str:
    """Return a row a stage, as Markdown."""
    columns: list[Column] = [
        ("right", number("right"), ".3f"),
        ("tests run first", number("tests_first"), ".2f"),
        ("tests run after an edit", number("tests_again"), ".2f"),
        ("edits", number("edits"), ".2f"),
        ("calls that failed", number("invalid"), ".2f"),
        ("wrong, though what is shown passed", number("unseen_wrong"), ".3f"),
        ("tokens", number("tokens"), ".0f"),
        ("trajectories sampled", number("samples"), ".0f"),
        ("kept", number("kept"), ".0f"),
        ("seconds of training", number("seconds"), ".0f"),
    ]
    named = [{**result, "stage": STAGES[result["stage"]]} for result in results]
    return table_by("stage", named, columns)


def differences(results: Sequence[Record]) -> str:
    """Return differences over seeds, and over held-out repositories with the seeds averaged."""
    stages = group_by("stage", results)
    found, rows = [], []
    for one, other in PAIRS:
        ours, others = (stages.get(stage, []) for stage in (one, other))
        pair = f"{STAGES[one]} less {STAGES[other]}"
        if (shift := by_seed(ours, others, number("right"))) is not None:
            found.append(([pair], shift))
        less = over_problems(*([r["shares"] for r in side] for side in (ours, others)))
        if less is not None:
            rows.append([pair, with_interval(less), str(less.num_problems)])
    headings = ["difference", "right, 95 % interval over repositories", "repositories"]
    return f"{seed_table(found, ['right'])}\n\n{as_markdown(headings, rows)}"


def draw(results: Sequence[Record]) -> Figure:
    """Return the figure: a bar a stage, and the curves of RL."""
    figure = Figure(figsize=(11, 4), dpi=110, layout="constrained")
    bars, curves = figure.subplots(1, 2)
    stages = {s: own for s in STAGES if (own := [r for r in results if r["stage"] == s])}
    for place, (stage, own) in enumerate(stages.items()):
        values = [r["right"] for r in own]
        value, error = mean_and_error(values)
        color = COLORS[list(STAGES).index(stage)]
        bars.bar(place, value, yerr=error, color=color, capsize=4, zorder=2)
        bars.scatter([place] * len(values), values, color="black", s=12, zorder=3)
        if stage in CURVES:
            points = zip(*(r["curve"] for r in own), strict=True)
            line = [(at[0][0], mean([value for _, value in at])) for at in points]
            curves.plot(*zip(*line, strict=True), "o-", color=color, label=STAGES[stage])
    names = [textwrap.fill(STAGES[stage], 14) for stage in stages]
    bars.set_xticks(range(len(names)), names, fontsize=8)
    tidy(bars, "Held-out repositories", ylabel="right", ylim=(0, 1))
    tidy(curves, "During RL", xlabel="iteration", ylabel="right, held out", ylim=(0, 1))
    curves.legend(frameon=False)
    caption = f"one base, {seeds_of(sorted({r['seed'] for r in results}))}"
    add_caption(figure, f"{caption}; bars: mean ± 1 s.e. over seeds, points: seeds")
    return figure


def report(results: Sequence[Record]) -> tuple[str, Figure]:
    """Return tables and figure."""
    text = "32 held-out repositories, 4 trajectories each; mean ± standard error over seeds."
    return f"{text}\n\n{as_table(results)}\n\n{differences(results)}", draw(results)
