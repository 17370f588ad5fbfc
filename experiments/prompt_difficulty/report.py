"""Page of prompt difficulty: how many samples each choice of prompts takes to reach an accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from matplotlib.figure import Figure

from experiments.curves import style_of
from experiments.study import Study
from experiments.tables import Column, by_seed, ends, group_by, seed_table, table_by
from r1lit.callbacks.figures import tidy
from r1lit.files import Record, read_records
from r1lit.metrics import mean

AIM = 0.75
"""The held-out pass@1 to be reached."""
CONTROL = "uniform"
MEASURED_BEFORE = "filtered"
"""The variant whose filter has cost samples of the base before the first iteration."""


def samples_to(evaluations: Sequence[Record], samples_per_iteration: int) -> float | None:
    """Return after how many samples pass@1 first reached ``AIM``, between evaluations linearly.

    None if it never did. ``evaluations`` are in order and begin before the first iteration.
    """
    for before, after in pairwise(evaluations):
        low, high = before["pass_at_1"], after["pass_at_1"]
        if high >= AIM:
            part = 1.0 if high == low else max(0.0, (AIM - low) / (high - low))
            steps = after["iteration"] - before["iteration"]
            return (before["iteration"] + part * steps) * samples_per_iteration
    return None


def read(study: Study) -> list[Record]:
    """Return each finished point, with its samples and the shares of groups that taught."""
    before = len(read_records(Path("runs/prompt_rates/responses.jsonl")))
    sweep, found = study.sweep("prompts"), []
    for result, folder in sweep.runs():
        lines = [x for x in read_records(folder / "metrics.jsonl") if "train/groups/mixed" in x]
        config = sweep.point(result["variant"], result["seed"]).config
        rollout = config["data"]["init_args"]["rollout"]
        each = rollout["prompts_per_iteration"] * rollout["group_size"]
        evaluations = [{k: e[k] for k in ("iteration", "pass_at_1")} for e in result["evaluations"]]
        found.append(
            {
                "variant": result["variant"],
                "seed": result["seed"],
                "samples_per_iteration": each,
                "samples_before": before if result["variant"] == MEASURED_BEFORE else 0,
                "samples_to_aim": samples_to(evaluations, each),
                "mixed": mean([line["train/groups/mixed"] for line in lines]),
                "train_accuracy": mean([line["train/reward/accuracy"] for line in lines]),
                "evaluations": evaluations,
            }
        )
    return found


def samples(run: Record) -> float:
    """Return the samples to the aim; all of the run's, which is too few, if it was not reached."""
    own: float | None = run["samples_to_aim"]
    whole: float = run["evaluations"][-1]["iteration"] * run["samples_per_iteration"]
    return whole if own is None else own


def cost(run: Record) -> float:
    """Return the samples to the aim, with those of measuring beforehand."""
    return samples(run) + float(run["samples_before"])


def as_table(results: Sequence[Record]) -> str:
    """Return a row a variant."""
    columns: list[Column] = [
        ("right, of training's responses", lambda run: run["train_accuracy"], ".3f"),
        ("groups with right and wrong responses", lambda run: run["mixed"], ".3f"),
        ("pass@1 on held-out problems", ends("pass_at_1"), ".3f"),
        (
            f"runs that reached {AIM}",
            lambda run: float(run["samples_to_aim"] is not None),
            "mean .2f",
        ),
        (f"samples to {AIM}", samples, ".0f"),
        ("with those of measuring", cost, ".0f"),
    ]
    return table_by("variant", results, columns, "prompts")


def against_control(results: Sequence[Record]) -> str:
    """Return the table of each variant's samples, those of measuring too, less the control's."""
    groups = group_by("variant", results)
    found = [
        ([name], shift)
        for name, runs in groups.items()
        if name != CONTROL and (shift := by_seed(runs, groups.get(CONTROL, []), cost)) is not None
    ]
    return seed_table(found, [f"samples less {CONTROL}"], ".0f")


def draw(results: Sequence[Record]) -> Figure:
    """Return the figure: accuracy against samples, a thin line a run and a thick one the mean."""
    figure = Figure(figsize=(7, 4), dpi=110, layout="constrained")
    axes = figure.subplots()
    for index, (name, runs) in enumerate(group_by("variant", results).items()):
        color, marker, line = style_of(index)
        each = runs[0]["samples_per_iteration"]
        places = [evaluation["iteration"] * each for evaluation in runs[0]["evaluations"]]
        heights = [[e["pass_at_1"] for e in run["evaluations"]] for run in runs]
        for own in heights:
            axes.plot(places, own, color=color, alpha=0.3, linewidth=0.8)
        means = [mean(values) for values in zip(*heights, strict=True)]
        axes.plot(places, means, marker + line, color=color, label=name, markersize=3)
    axes.axhline(AIM, color="0.6", linestyle=":")
    tidy(axes, "", xlabel="samples of training", ylabel="pass@1 on held-out problems")
    axes.set_ylim(0, 1)
    axes.legend(frameon=False)
    return figure


def report(results: Sequence[Record]) -> tuple[str, Figure]:
    """Return table and figure."""
    text = (
        f"Means ± standard errors over seeds. A run that did not reach {AIM} counts with all of its"
        f" samples, so a saving over it is at least what the table says.\n\n{as_table(results)}\n\n"
        f"{against_control(results)}"
    )
    return text, draw(results)
