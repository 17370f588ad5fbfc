"""The tables and the figure: model and oracle side by side, first how far the model is right."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.curves import COLORS
from experiments.study import Study
from experiments.tables import as_markdown, mean_cell, seed_table
from r1lit.callbacks.figures import add_caption, seeds_of, tidy
from r1lit.files import Record
from r1lit.metrics import mean, mean_and_error
from r1lit.metrics.seeds import shift_over_seeds

KINDS = {"requests": "requests", "chain": "chains", "countdown": "Countdown"}
ARMS = {"oracle": "oracles", "model": "the larger model", "none": "neither"}
WORDS = ((0.8, "close to the oracle"), (0.6, "a fair judge"), (0.4, "a weak judge"))
POOR = "a poor judge"
SCORES = (
    ("pass_at_1", "reasoning pass@1"),
    ("format", "format"),
    ("language_consistency", "language consistency"),
    ("helpfulness_true", "true helpfulness"),
    ("instruction_following", "instruction following"),
    ("safety", "safety"),
)
JUDGED = ("right_by_oracle", "right_by_model", "accuracy", "kappa", "undecided")
COMPARED = ("same_sign", "ties", "first_preferred")
REFINED = ("replied", "keeps_answer", "readable")
PAIRS = ("training_pairs", "compared")
RIGHT = ("training_right", "accuracy")


def read(study: Study) -> list[Record]:
    """Return the numbers of each finished seed's run."""
    return [read_seed(run) for run in study.runs if (run / "eval_none" / "report.json").exists()]


def read_seed(run: Path) -> Record:
    """Return the numbers of one seed's run.

    Raises:
        ValueError: if it is not finished.
    """
    try:
        manifest = json.loads((run / "manifest.json").read_text())
        reports = {arm: json.loads((run / f"eval_{arm}/report.json").read_text()) for arm in ARMS}
        numbers = {
            name: json.loads((run / f"{name}.json").read_text()) for name in ("agreement", "truth")
        }
        kept = {arm: json.loads((run / f"gather_{arm}/card.json").read_text()) for arm in ARMS}
    except FileNotFoundError as error:
        raise ValueError(f"{run}: not finished, there is no {error.filename}") from error
    seconds = {entry["name"]: entry["cost"]["seconds"] for entry in manifest["steps"]}
    return {
        "seed": manifest["seed"],
        **numbers,
        "evaluations": {arm: scores_of(report) for arm, report in reports.items()},
        "documents": {arm: card["num_kept"] for arm, card in kept.items()},
        "seconds": seconds,
    }


def scores_of(report: dict[str, Any]) -> dict[str, float]:
    """Return what the SFT table shows of an evaluation."""
    by_kind = report["by"]["kind"]
    return {"pass_at_1": by_kind["reasoning"]["value"], **report["eval_metrics"]}


def verdict(seeds: Sequence[Record]) -> str:
    """Return the sentence that the page begins with: how far the model can be trusted."""
    kappas = {
        title: [seed["agreement"]["judge"]["kinds"][kind]["kappa"] for seed in seeds]
        for kind, title in KINDS.items()
        if all(kind in seed["agreement"]["judge"]["kinds"] for seed in seeds)
    }
    said = []
    for title, values in kappas.items():
        known = [value for value in values if value is not None]
        word = next((word for least, word in WORDS if known and mean(known) >= least), POOR)
        said.append(f"of {title} it is {word} (Cohen's kappa {mean_cell(values, '.2f')})")
    compared = [seed["agreement"]["preference"] for seed in seeds]
    same = {
        name: mean_cell([one[name]["same_sign"] for one in compared], ".2f")
        for name in ("model", "oracle")
    }
    good = mean_cell([seed["agreement"]["refiner"]["all_three"] for seed in seeds], ".2f")
    return (
        f"**What the larger model is worth:** {'; '.join(said)}. Of two answers it prefers the"
        f" truly better one in {same['model']} of pairs, the noisy annotators in {same['oracle']}."
        f" Of the chains it refines, {good} keep the answer, are readable and in one language."
    )


def agreement_tables(seeds: Sequence[Record]) -> str:
    """Return the tables of judge, annotator and refiner."""
    names = ["judge of", "responses", "right by the oracle", "right by the model", "accuracy"]
    rows = []
    for kind, title in KINDS.items():
        own = [seed["agreement"]["judge"]["kinds"].get(kind) for seed in seeds]
        found = [one for one in own if one]
        if not found:
            continue
        cells = [title, mean_cell([one["num"] for one in found], "mean .0f")]
        rows.append(cells + [mean_cell([one[key] for one in found], ".3f") for key in JUDGED])
    judge = as_markdown([*names, "kappa", "no verdict"], rows)
    names = ["comparisons by", "pairs", "sign of the true difference", "ties"]
    rows = []
    for name, title in (("model", "the larger model"), ("oracle", "noisy annotators")):
        own = [seed["agreement"]["preference"][name] for seed in seeds]
        cells = [title, mean_cell([one["num_pairs"] for one in own], "mean .0f")]
        rows.append(cells + [mean_cell([one[key] for one in own], ".3f") for key in COMPARED])
    preference = as_markdown([*names, "first shown preferred"], rows)
    names = ["refiner", "right chains", "could be read", "keep the answer", "readable"]
    names += ["one language, before → after", "all three"]
    own = [seed["agreement"]["refiner"] for seed in seeds]
    cells = ["the larger model", mean_cell([one["num"] for one in own], "mean .0f")]
    cells += [mean_cell([one[key] for one in own], ".3f") for key in REFINED]
    both = ("one_language_before", "one_language")
    cells.append(" → ".join(mean_cell([one[key] for one in own], ".3f") for key in both))
    cells.append(mean_cell([one["all_three"] for one in own], ".3f"))
    return "\n\n".join([judge, preference, as_markdown(names, [cells])])


def cost_tables(seeds: Sequence[Record]) -> str:
    """Return the tables of what the stages behind lose, and of seconds."""
    names = ["reward model on pairs of", "pairs kept of compared", "of them right"]
    rows = []
    for name, title in (("oracle", "noisy annotators"), ("model", "the larger model")):
        own = [seed["truth"][name] for seed in seeds]
        counts = [mean_cell([one[k] for one in own], "mean .0f") for k in PAIRS]
        cells = [title, " of ".join(counts)]
        rows.append(cells + [mean_cell([one[key] for one in own], ".3f") for key in RIGHT])
    reward = as_markdown([*names, "accuracy against the truth"], rows)
    names = ["SFT on data judged and refined by", "documents", *(title for _, title in SCORES)]
    rows = []
    for arm, title in ARMS.items():
        own = [seed["evaluations"][arm] for seed in seeds]
        cells = [title, mean_cell([seed["documents"][arm] for seed in seeds], "mean .0f")]
        rows.append(cells + [mean_cell([one.get(key) for one in own], ".3f") for key, _ in SCORES])
    sft = as_markdown(names, rows)
    seconds = [seed["seconds"] for seed in seeds]
    rows = []
    for step in ("pairs", "gather"):
        spent = [[own[f"{step}_{arm}"] for own in seconds] for arm in ("oracle", "model")]
        rows.append([step, *(mean_cell(values, ".0f") for values in spent)])
    training = mean_cell([own["larger"] for own in seconds], ".0f")
    rows.append(["training the larger model", "–", training])
    time = as_markdown(["seconds of a step", "oracles", "the larger model"], rows)
    total = mean_cell([sum(own.values()) for own in seconds], ".0f")
    parts = [reward, sft, compared(seeds), time, f"All steps of a seed: {total} seconds."]
    return "\n\n".join(part for part in parts if part)


def compared(seeds: Sequence[Record]) -> str:
    """Return the table of SFT on the larger model's data less the others; nothing of one seed."""

    def scores(arm: str, key: str) -> dict[int, float]:
        own = {seed["seed"]: seed["evaluations"][arm].get(key) for seed in seeds}
        return {seed: value for seed, value in own.items() if value is not None}

    found = [
        (
            [f"{ARMS['model']} less {ARMS[other]}", title],
            shift_over_seeds(scores("model", key), scores(other, key)),
        )
        for other in ("oracle", "none")
        for key, title in SCORES
    ]
    if any(shift is None for _, shift in found):
        return ""
    return seed_table(found, ["SFT on data judged and refined by", "measure"])


def draw(seeds: Sequence[Record]) -> Figure:
    """Return the figure: agreement by task, and the SFT stage by who judged and refined."""
    figure = Figure(figsize=(10, 4.2), dpi=110, layout="constrained")
    left, right = figure.subplots(1, 2)
    tasks: dict[str, list[float]] = {}
    for seed in seeds:
        own = seed["agreement"]
        for kind, title in KINDS.items():
            if kind in own["judge"]["kinds"]:
                accuracy = own["judge"]["kinds"][kind]["accuracy"]
                tasks.setdefault(f"judge:\n{title}", []).append(accuracy)
        for name, title in (("model", "model"), ("oracle", "annotators")):
            same = own["preference"][name]["same_sign"]
            tasks.setdefault(f"pairs:\n{title}", []).append(same)
        tasks.setdefault("refiner:\nall three", []).append(own["refiner"]["all_three"])
    _bars(left, list(tasks), [list(tasks.values())], ["the larger model"])
    tidy(left, "Agreement with the truth, held out", ylabel="share", ylim=(0, 1))
    groups = [
        [[seed["evaluations"][arm].get(key, 0.0) for seed in seeds] for key, _ in SCORES]
        for arm in ARMS
    ]
    _bars(right, [title.replace(" ", "\n") for _, title in SCORES], groups, list(ARMS.values()))
    tidy(right, "After SFT on data judged and refined by", ylabel="held-out mean", ylim=(0, 1.12))
    right.legend(frameon=False, fontsize=8, ncols=len(ARMS), loc="upper center")
    add_caption(figure, f"{seeds_of(seed['seed'] for seed in seeds)}; bars: ± 1 s.e. over seeds")
    return figure


def _bars(
    axes: Axes, names: Sequence[str], groups: Sequence[Sequence[Sequence[float]]], labels: list[str]
) -> None:
    width = 0.8 / len(groups)
    for index, (group, label) in enumerate(zip(groups, labels, strict=True)):
        means, errors = zip(*(mean_and_error(values) for values in group), strict=True)
        places = [place + (index - (len(groups) - 1) / 2) * width for place in range(len(names))]
        axes.bar(places, means, width, yerr=[e or 0.0 for e in errors], color=COLORS[index],
                 label=label)  # fmt: skip
    axes.set_xticks(range(len(names)), names, fontsize=8)


def report(seeds: Sequence[Record]) -> tuple[str, Figure]:
    """Return the tables, as Markdown, and the figure."""
    said = "seed" if len(seeds) == 1 else "seeds ± standard error"
    head = f"Mean over {len(seeds)} {said}."
    parts = (verdict(seeds), head, agreement_tables(seeds), cost_tables(seeds))
    return "\n\n".join(parts), draw(seeds)
