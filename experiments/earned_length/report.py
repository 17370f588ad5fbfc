"""The page of earned length: before and after, the slope of length, levels, and bans."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from operator import itemgetter
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from experiments.by_source import evaluations
from experiments.earned_length.figure import HABITS, LONGEST_PAGES, WORDS, draw, of_habit, of_level
from experiments.earned_length.levels import by_level, habits_of
from experiments.measures import cons_at_most, mean_cell
from experiments.page import as_markdown
from experiments.paired import over_problems, tested_cells
from experiments.r1.manifest import finished_steps
from r1lit.evaluation.compare import shares_right
from r1lit.files import Record, read_records
from r1lit.metrics import mean, paired_shift

BANS = {
    "free": ("nothing", ()),
    "no_checks": ("what begins a check", (" wait", " let", " check")),
    "no_switches": ("what begins another branch", (" But", " However", " Try")),
}
"""Steps of pipeline.yaml: what is banned, and the words, as they stand there."""
MEASURES: tuple[tuple[str, str, str], ...] = (
    ("pass@1", "pass_at_1", ".3f"),
    ("cons@k", "cons", ".3f"),
    ("tokens", "response_length_tokens", ".0f"),
    ("reflection words", "reflection_words_per_response", ".2f"),
    ("well-formed", "format", ".3f"),
)
FOLDS = ("response_length_tokens", "reflection_words_per_response")


def read(runs: Sequence[Path]) -> list[Record]:
    """Return what each finished seed's run measured."""
    return [read_seed(run) for run in runs if "rl" in finished_steps(run)]


def read_seed(run: Path) -> Record:
    """Return one seed's evaluations with levels and habits, its iterations and its bans."""
    evaluated = evaluations(read_records(run / "rl" / "responses.jsonl"))
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


def _with_interval(values: Sequence[float]) -> str:
    if len(values) < 2:
        return f"{mean(values):+.2f}"
    found = paired_shift(values)
    return f"{mean(values):+.2f} ({found.low:+.2f} to {found.high:+.2f})"


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
    return as_markdown(headings, rows)


def report(seeds: Sequence[Record]) -> tuple[str, Figure]:
    """Return the tables, as Markdown, and the figure."""
    num = len(seeds[0]["tokens"])
    parts = [
        f"Before → after {num} iterations; ± is the standard error over {len(seeds)} seeds.",
        before_and_after(seeds),
        shape(seeds),
        "### By difficulty",
        levels_table(seeds),
        "### Habits",
        habits_table(seeds),
    ]
    if bans := bans_table(seeds):
        parts += ["### With words banned", bans]
    return "\n\n".join(parts), draw(seeds)
