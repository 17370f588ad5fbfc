"""Page of earned length: before and after, the slope of length, levels, habits and bans."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from operator import itemgetter
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from experiments.by_source import evaluated_in
from experiments.curves import COLORS, draw_band, smooth
from experiments.earned_length.levels import by_level, habits_of
from experiments.earned_length.simulate import SIMULATED, tokens_for
from experiments.manifest import finished_steps
from experiments.study import Study
from experiments.tables import (
    as_markdown,
    cons_at_most,
    mean_cell,
    over_problems,
    seed_table,
    tested_cells,
    with_interval,
)
from r1lit.callbacks.figures import WORD_COLORS, add_caption, tidy
from r1lit.evaluation.compare import shares_right
from r1lit.files import Record, read_records
from r1lit.metrics import mean
from r1lit.metrics.seeds import paired_shift

LONGEST_PAGES = 127
"""Tokens of the longest hundredth of the corpus's responses, in the mean."""
WORDS = ("wait", "verify", "check", "but", "however")
HABITS = {
    "gives_up_per_attempt": "gives up after an attempt",
    "deceptive_checked": "verifies a near miss",
    "wrong_glances": "glances wrongly",
    "wrong_equations": "computes wrongly",
}
BANS = {
    "free": ("nothing", ()),
    "no_checks": ("what begins a check", (" wait", " let", " check")),
    "no_switches": ("what begins another branch", (" But", " However", " Try")),
}
"""Steps of study.yaml: what is banned, and the words, as they stand there."""
MEASURES: tuple[tuple[str, str, str], ...] = (
    ("pass@1", "pass_at_1", ".3f"),
    ("cons@k", "cons", ".3f"),
    ("tokens", "response_length_tokens", ".0f"),
    ("reflection words", "reflection_words_per_response", ".2f"),
    ("well-formed", "format", ".3f"),
)
FOLDS = ("response_length_tokens", "reflection_words_per_response")


def read(study: Study) -> list[Record]:
    """Return what each finished seed's run measured."""
    return [read_seed(run) for run in study.runs if "rl" in finished_steps(run)]


def read_seed(run: Path) -> Record:
    """Return one seed's evaluations with levels and habits, its iterations and its bans."""
    evaluated = evaluated_in(run / "rl")
    summary = json.loads((run / "rl" / "summary.json").read_text())
    lines = read_records(run / "rl" / "metrics.jsonl")
    bans: dict[str, Record] = {}
    for name in BANS:
        if (run / name / "report.json").exists():
            responses = read_records(run / name / "responses.jsonl")
            texts = [r["response"] for r in responses]
            uses = {n: mean([sum(map(t.count, w)) for t in texts]) for n, (_, w) in BANS.items()}
            bans[name] = {
                "tokens": mean([r["num_tokens"] for r in responses]),
                "uses": uses,
                "shares": shares_right(run / name),
            }
    return {
        "run": run.name,
        "evaluations": [
            {
                **own,
                "cons": cons_at_most(own),
                "levels": by_level(evaluated[i]),
                "habits": habits_of(evaluated[i]),
            }
            for own in summary
            if (i := own["iteration"]) in evaluated
        ],
        "tokens": [line["train/length/mean"] for line in lines],
        "words": {w: [line[f"train/reflection/word/{w}"] for line in lines] for w in WORDS},
        "bans": bans,
    }


def before_and_after(seeds: Sequence[Record]) -> str:
    """Return a row a seed, and one of their means, as Markdown."""
    rows = []
    for seed in seeds:
        cells = [seed["run"].removeprefix("seed-")]
        for _, key, form in MEASURES:
            before, after = (seed["evaluations"][i][key] for i in (0, -1))
            fold = f" ({after / before:.1f}-fold)" if key in FOLDS and before else ""
            cells.append(f"{before:{form}} → {after:{form}}{fold}")
        rows.append(cells)
    means = [" → ".join(_at_ends(seeds, itemgetter(key), form)) for _, key, form in MEASURES]
    rows.append(["mean ± s.e.", *means])
    return as_markdown(["seed", *(name for name, *_ in MEASURES)], rows)


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the least-squares slope of length over the last third of the iterations.

    Args:
        points: of an iteration and a length in tokens; the last one ends the run.

    >>> round(slope([(0, 9.0), (3, 9.0), (6, 1.0), (9, 7.0)]), 6)
    2.0
    """
    last = [point for point in points if point[0] >= points[-1][0] * 2 / 3]
    x, y = zip(*(last if len(last) > 1 else points[-2:]), strict=True)
    return float(np.polyfit(x, y, 1)[0])


def shape(seeds: Sequence[Record]) -> str:
    """Return what the curves are held to, in sentences."""
    held_out = [
        [(e["iteration"], e["response_length_tokens"]) for e in seed["evaluations"]]
        for seed in seeds
    ]
    trained = [list(enumerate(seed["tokens"], 1)) for seed in seeds]
    slopes = " and ".join(
        f"{_with_interval([slope(points) for points in curves])} ({name})"
        for curves, name in ((held_out, "held out"), (trained, "in training"))
    )
    first = [
        evaluation["cons"]
        for seed in seeds
        for evaluation in seed["evaluations"]
        if evaluation["iteration"] <= len(seed["tokens"]) / 3
    ]
    gap = [e["cons"] - e["pass_at_1"] for seed in seeds for e in seed["evaluations"]]
    return (
        f"Length over the last third of the iterations grows by {slopes} tokens an iteration;"
        f" in brackets: 95 % interval over seeds. cons@k in the first third: at most"
        f" {max(first):.3f}; less pass@1: at least {min(gap):+.3f} in all evaluations. The longest"
        f" hundredth of the corpus's responses: {LONGEST_PAGES} tokens."
    )


def unneeded(seeds: Sequence[Record]) -> str:
    """Return how much of the length that was gained buys no accuracy, by the simulated authors.

    Of each seed: its tokens less those with which simulated authors reach the same pass@1.
    """
    rows = read_records(SIMULATED)
    ends = [seed["evaluations"][-1] for seed in seeds]
    more = [e["response_length_tokens"] - tokens_for(e["pass_at_1"], rows) for e in ends]
    gained = [
        e["response_length_tokens"] - seed["evaluations"][0]["response_length_tokens"]
        for e, seed in zip(ends, seeds, strict=True)
    ]
    return (
        f"Of {mean(gained):.0f} tokens gained, {with_interval(paired_shift(more), '.0f')} buy no"
        " accuracy: simulated authors (below) reach each seed's pass@1 with so many fewer."
    )


def _with_interval(values: Sequence[float]) -> str:
    if len(values) < 2:
        return f"{mean(values):+.2f}"
    return with_interval(paired_shift(values), "+.2f")


def levels_table(seeds: Sequence[Record]) -> str:
    """Return accuracy and tokens by level, before and after, as Markdown."""
    rows = []
    for level in seeds[0]["evaluations"][0]["levels"]:
        cells = [level.removeprefix("attempts ")]
        for key, form in (("pass_at_1", ".2f"), ("tokens", ".0f")):
            cells.append(" → ".join(_at_ends(seeds, of_level(level, key), form)))
        rows.append([*cells, _at_ends(seeds, of_level(level, "truncated"), ".2f")[-1]])
    return as_markdown(["attempts needed", "pass@1", "tokens", "cut off, after"], rows)


def _at_ends(
    seeds: Sequence[Record], value: Callable[[Record], float], form: str
) -> tuple[str, str]:
    """Return a value before and after, mean ± standard error over seeds."""
    before, after = (
        mean_cell([value(seed["evaluations"][i]) for seed in seeds], form) for i in (0, -1)
    )
    return before, after


def habits_table(seeds: Sequence[Record]) -> str:
    """Return each habit's rate before and after as Markdown."""
    rows = [[name, *_at_ends(seeds, of_habit(key), ".3f")] for key, name in HABITS.items()]
    return as_markdown(["an attempt's share that", "before", "after"], rows)


def bans_table(seeds: Sequence[Record]) -> str:
    """Return accuracy under each ban, less that without one over the same problems."""
    done = [seed["bans"] for seed in seeds if seed["bans"].keys() == BANS.keys()]
    if not done:
        return ""
    free = [bans["free"]["shares"] for bans in done]
    costs = {
        name: cost
        for name in BANS
        if name != "free"
        and (cost := over_problems([bans[name]["shares"] for bans in done], free)) is not None
    }
    tested = dict(zip(costs, tested_cells(list(costs.values())), strict=True))
    rows = []
    for name, (said, words) in BANS.items():
        accuracies = [mean(list(bans[name]["shares"].values())) for bans in done]
        listed = ", ".join(f"*{word.strip()}*" for word in words)
        cells = [f"{said}: {listed}" if words else said]
        cells.append(mean_cell([bans["free"]["uses"][name] for bans in done], ".2f"))
        cells.append(mean_cell([bans[name]["tokens"] for bans in done], ".0f"))
        cells.append(mean_cell(accuracies, ".3f"))
        rows.append([*cells, *tested.get(name, [""] * 3)])
    headings = ["banned at decoding", "times a response, not banned", "tokens", "pass@1"]
    headings += ["less no ban, 95 % interval over problems", "p", "p, Holm"]
    costs_S = {
        BANS[name][0]: [
            mean(list(bans[name]["shares"].values())) - mean(list(bans["free"]["shares"].values()))
            for bans in done
        ]
        for name in costs
    }
    over_seeds = [([said], paired_shift(own)) for said, own in costs_S.items() if len(own) > 1]
    tables = [as_markdown(headings, rows), seed_table(over_seeds, ["less no ban, over seeds"])]
    return "\n\n".join(table for table in tables if table)


def draw(seeds: Sequence[Record]) -> Figure:
    """Return the figure: accuracy, length, words and checks along training, and by level."""
    figure = Figure(figsize=(14, 8.2), dpi=110, layout="constrained")
    (accuracy, length, words), (by_accuracy, by_tokens, checks) = figure.subplots(2, 3)
    for place, (key, name) in enumerate((("pass_at_1", "pass@1"), ("cons", "majority vote"))):
        draw_band(accuracy, seeds, itemgetter(key), name, COLORS[place], "o-")
    for place, seed in enumerate(seeds):
        color = COLORS[place % len(COLORS)]
        length.plot(seed["tokens"], color=color, linewidth=1, label=_name(seed))
    length.axhline(LONGEST_PAGES, color="#444444", linestyle=":", label="longest documents")
    for word in WORDS:
        middles, means = np.mean([smooth(seed["words"][word]) for seed in seeds], axis=0)
        words.plot(middles, means, color=WORD_COLORS[word], label=word)
    for place, level in enumerate(seeds[0]["evaluations"][0]["levels"]):
        name = level.removeprefix("attempts ")
        for axes, key in ((by_accuracy, "pass_at_1"), (by_tokens, "tokens")):
            draw_band(axes, seeds, of_level(level, key), name, COLORS[place], "o-")
    for place, key in enumerate(("deceptive_checked", "gives_up_per_attempt")):
        draw_band(checks, seeds, of_habit(key), HABITS[key], COLORS[place], "o-")
    for axes, title, label in (
        (accuracy, "Accuracy", "held out"),
        (length, "Length in training", "tokens per response"),
        (words, "Words in training", "per response, mean of five iterations"),
        (by_accuracy, "Accuracy by attempts needed", "pass@1, held out"),
        (by_tokens, "Length by attempts needed", "tokens per response, held out"),
        (checks, "Behaviours", "share of attempts"),
    ):
        tidy(axes, title, xlabel="iteration", ylabel=label)
        axes.legend(frameon=False, fontsize=8)
    by_accuracy.set_ylim(-0.03, 1.35)
    by_accuracy.legend(frameon=False, fontsize=8, ncols=3, loc="upper center")
    by_tokens.set_yscale("log")
    by_tokens.yaxis.set_major_locator(FixedLocator((25, 50, 100, 200, 400, 800)))
    by_tokens.yaxis.set_major_formatter("{x:.0f}")
    by_tokens.yaxis.set_minor_locator(NullLocator())
    last = seeds[0]["evaluations"][-1]
    add_caption(
        figure,
        f"models/search; {len(seeds)} seeds; {last['num_problems']} held-out problems x"
        f" {last['num_samples']} responses; lines: means over seeds, bands: ± 1 s.e. of them",
    )
    return figure


def of_level(level: str, key: str) -> Callable[[Record], float]:
    """Return what reads a number of a level from an evaluation."""
    return lambda evaluation: evaluation["levels"][level][key]


def of_habit(key: str) -> Callable[[Record], float]:
    """Return what reads a habit from an evaluation."""
    return lambda evaluation: evaluation["habits"][key]


def _name(seed: Record) -> str:
    return str(seed["run"]).replace("-", " ")


def report(seeds: Sequence[Record]) -> tuple[str, Figure]:
    """Return the tables, as Markdown, and the figure."""
    num = len(seeds[0]["tokens"])
    parts = [
        f"Before → after {num} iterations; ± is the standard error over {len(seeds)} seeds.",
        before_and_after(seeds),
        shape(seeds),
        *([unneeded(seeds)] if len(seeds) > 1 else []),
        "### By difficulty",
        levels_table(seeds),
        "### Habits",
        habits_table(seeds),
    ]
    if bans := bans_table(seeds):
        parts += ["### With words banned", bans]
    return "\n\n".join(parts), draw(seeds)
