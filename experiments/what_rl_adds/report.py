"""Page of what RL adds: controls, pass@k, the decisions that RL changed, and doses of patience."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.curves import COLORS, draw_band, style_of
from experiments.earned_length.levels import attempts_of_right, found_at_k
from experiments.report import as_table
from experiments.study import Study
from experiments.tables import (
    all_pairs,
    as_markdown,
    ends,
    group_by,
    mean_cell,
    number,
    table_by,
)
from r1lit.callbacks.figures import add_caption, seeds_of, tidy
from r1lit.files import Record, read_records
from r1lit.metrics import mean, mean_and_error

PARTS = ("controls", "samples", "decisions", "doses")
SAMPLES = {"base": "base", "rl": "RL", "sft": "SFT on patient pages"}
PATIENT = "patient-"
KS = (1, 4, 16, 64, 256)
ATTEMPTS = {
    "as_needed": "right by as many attempts as needed",
    "fewer": "by fewer",
    "guessed": "after giving up",
}
"""Of the right responses to problems that need six attempts or more."""
FOUND = "pass@1 and the largest pass@k of answers that were found, not guessed after giving up:"
MEASURES = (
    ("pass@1", "pass_at_1", ".3f"),
    ("tokens per response", "response_length_tokens", ".0f"),
    ("reflection words per response", "reflection_words_per_response", ".2f"),
)


def read(study: Study) -> list[Record]:
    """Return what is finished, each record with its ``part`` of the page.

    A control has its entropies beside its evaluations; a sample pass@k of a policy, and how its
    right responses came about; decisions are `decisions.measure`'s; a dose has the evaluations of
    RL from one of the bases of the step ``pages``.
    """
    controls = []
    for result, folder in study.sweep("controls").runs():
        lines = read_records(folder / "metrics.jsonl")
        controls.append({**result, "entropies": [line["train/entropy"] for line in lines]})
    samples, decisions = [], []
    for run in study.runs:
        if (measured := run / "samples" / "rl" / "decisions.json").exists():
            decisions.append({"run": run.name, "kinds": json.loads(measured.read_text())})
        for name in SAMPLES:
            report = run / "samples" / name / "report.json"
            if report.exists():
                found = json.loads(report.read_text())
                by_k = {k: own["value"] for k, own in found["pass_at_k"].items() if int(k) in KS}
                tokens = found["response_length"]["mean"]
                responses = read_records(report.with_name("responses.jsonl"))
                own = {"run": run.name, "policy": name, "pass_at_k": by_k, "tokens": tokens}
                own |= {"found_at_k": found_at_k(responses, KS), **attempts_of_right(responses)}
                samples.append(own)
    parts = (controls, samples, decisions, study.sweep("doses").results())
    return [
        {"part": part, **record}
        for part, records in zip(PARTS, parts, strict=True)
        for record in records
    ]


def samples_table(samples: Sequence[Record]) -> str:
    """Return pass@k of each policy as Markdown, mean ± standard error over seeds."""
    ks = [str(k) for k in KS if all(str(k) in sample["pass_at_k"] for sample in samples)]
    columns = [("tokens", number("tokens"), ".0f")]
    columns += [(f"pass@{k}", number("pass_at_k", k), ".3f") for k in ks]
    columns += [(heading, number(key), ".2f") for key, heading in ATTEMPTS.items()]
    named = [{**sample, "policy": SAMPLES[sample["policy"]]} for sample in samples]
    return table_by("policy", named, columns, "")


def found_table(samples: Sequence[Record]) -> str:
    """Return by level what k responses find, guesses not counted, as Markdown."""
    levels = list(samples[0]["found_at_k"])
    rows = []
    for name, own in group_by("policy", samples).items():
        cells = [SAMPLES[name]]
        for level in levels:
            values = [list(s["found_at_k"][level].values()) for s in own]
            first, last = (mean_cell([of[i] for of in values], ".3f") for i in (0, -1))
            cells.append(f"{first}; {last}")
        rows.append(cells)
    return as_markdown(["attempts needed", *(lv.removeprefix("attempts ") for lv in levels)], rows)


def found_by_k(sample: Record) -> dict[int, float]:
    """Return pass@k without guesses over all levels, of as many problems each."""
    levels = sample["found_at_k"].values()
    return {int(k): mean([level[k] for level in levels]) for k in next(iter(levels))}


def decisions_table(decisions: Sequence[Record]) -> str:
    """Return what RL changed at each kind of decision as Markdown, mean ± s.e. over seeds."""
    rows = []
    totals = [sum(map(_moved, own["kinds"].values())) for own in decisions]
    for kind in decisions[0]["kinds"]:
        own = [seed["kinds"][kind] for seed in decisions]
        if not all(o["decisions"] for o in own):
            continue  # a policy that never comes to decide it
        moved = [_moved(o) for o in own]
        before, after = (
            mean_cell([math.exp(o[model] / o["decisions"]) for o in own], ".3f")
            for model in ("base", "policy")
        )
        shares = [part / total for part, total in zip(moved, totals, strict=True)]
        number = mean_cell([o["decisions"] for o in own], ".0f")
        rows.append(
            [kind, number, f"{before} → {after}", mean_cell(moved, ".1f"), mean_cell(shares, ".2f")]
        )
    rows.append(["all", "", "", mean_cell(totals, ".1f"), ""])
    return as_markdown(
        ["what is decided", "a response", "probability", "nats a response", "share"], rows
    )


def _moved(own: Record) -> float:
    return float(own["policy"] - own["base"])


def doses_table(doses: Sequence[Record]) -> str:
    """Return each base before and after RL as Markdown, mean ± standard error over seeds."""
    columns = [(heading, ends(key), form) for heading, key, form in MEASURES]
    return table_by("variant", doses, columns, "base")


def draw(results: dict[str, list[Record]]) -> Figure:
    """Return the figure: along training by control, over k by policy, over the dose."""
    figure = Figure(figsize=(14, 8.4), dpi=110, layout="constrained")
    (accuracy, length, entropy), (samples, dose, dose_length) = figure.subplots(2, 3)
    for index, (variant, group) in enumerate(group_by("variant", results["controls"]).items()):
        color, marker, line = style_of(index)
        draw_band(accuracy, group, number("pass_at_1"), variant, color, marker + line)
        draw_band(length, group, number("response_length_tokens"), variant, color, marker + line)
        entropies = zip(*(result["entropies"] for result in group), strict=False)
        entropy.plot([mean(own) for own in entropies], color=color, label=variant)
    for index, (name, own) in enumerate(group_by("policy", results["samples"]).items()):
        ks = sorted(map(int, own[0]["pass_at_k"]))
        of_k = {k: [sample["pass_at_k"][str(k)] for sample in own] for k in ks}
        _line(samples, of_k, SAMPLES[name], COLORS[index])
        found = [found_by_k(sample) for sample in own]
        of_k = {k: [values[k] for values in found] for k in found[0]}
        _line(samples, of_k, f"{SAMPLES[name]}: not guessed", COLORS[index], "--")
    by_share = {
        int(base.removeprefix(PATIENT)): own
        for base, own in group_by("variant", results["doses"]).items()
        if base.startswith(PATIENT)
    }
    for axes, key in ((dose, "pass_at_1"), (dose_length, "response_length_tokens")):
        for place, label, color in ((0, "the base", COLORS[0]), (-1, "after RL", COLORS[1])):
            values = {s: [d["evaluations"][place][key] for d in g] for s, g in by_share.items()}
            _line(axes, values, label, color)
    samples.set_xscale("log", base=2)
    samples.set_ylim(0, 1.05)
    for axes, title, x, y in (
        (accuracy, "Controls: accuracy", "iteration", "pass@1, held out"),
        (length, "Controls: length", "iteration", "tokens per response"),
        (entropy, "Controls: entropy", "iteration", "nats a token, training"),
        (samples, "Does RL add or elicit?", "k", "pass@k, held out"),
        (dose, "Patience in the base: accuracy", "authors who never give up, %", "pass@1"),
        (dose_length, "and length", "authors who never give up, %", "tokens per response"),
    ):
        tidy(axes, title, xlabel=x, ylabel=y)
        if axes.has_data():
            corner = "lower right" if axes is samples else "best"
            axes.legend(frameon=False, fontsize=8, handlelength=3, loc=corner)
    controls, doses = (
        seeds_of(result["seed"] for result in results[part]) for part in ("controls", "doses")
    )
    runs = seeds_of(int(sample["run"].removeprefix("seed-")) for sample in results["samples"])
    bars = "lines: means over seeds, bands and bars: ± 1 s.e. of them"
    add_caption(
        figure, f"models/search; controls: {controls}; pass@k: {runs}; patience: {doses}; {bars}"
    )
    return figure


def _line(
    axes: Axes, values: dict[int, list[float]], label: str, color: str, style: str = "-"
) -> None:
    """Draw means over seeds with their standard errors."""
    points = [mean_and_error(own) for own in values.values()]
    errors = [error or 0.0 for _, error in points]
    heights = [height for height, _ in points]
    form = f"o{style}"
    axes.errorbar(list(values), heights, errors, None, form, color=color, label=label, markersize=4)


def report(records: Sequence[Record]) -> tuple[str, Figure]:
    """Return the tables of the parts that there are, as Markdown, and the figure."""
    results: dict[str, list[Record]] = {part: [] for part in PARTS} | group_by("part", records)
    parts = ["Mean ± standard error over seeds, before → after where there are two."]
    if results["controls"]:
        parts += ["### Controls", as_table(results["controls"]), all_pairs(results["controls"])]
    if results["samples"]:
        parts += ["### Many samples", samples_table(results["samples"])]
        parts += [FOUND, found_table(results["samples"])]
    if results["decisions"]:
        parts += ["### What RL changed", decisions_table(results["decisions"])]
    if results["doses"]:
        parts += ["### Patience in the base", doses_table(results["doses"])]
    return "\n\n".join(part for part in parts if part), draw(results)
