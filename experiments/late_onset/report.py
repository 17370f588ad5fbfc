"""Page of late onset: "wait" and checks along training, by how rarely the base verifies."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

import numpy as np
from matplotlib.figure import Figure

from experiments.by_source import evaluated_in
from experiments.curves import draw_band, smooth, style_of
from experiments.earned_length.levels import habits_of
from experiments.study import Study
from experiments.tables import Column, by_seed, ends, group_by, seed_table, table_by
from r1lit.callbacks.figures import tidy
from r1lit.files import Record, read_records

WORDS = ("wait", "verify", "check")
"""What begins a check; the first is the paper's (Fig. 9b), and the page's."""
WINDOW = 5
"""Iterations that a rate of a word is the mean of."""


def read(study: Study) -> list[Record]:
    """Return each finished point: words of checks in training, and its evaluations with habits."""
    found = []
    for result, folder in study.sweep("rl").runs():
        lines = read_records(folder / "metrics.jsonl")
        evaluated = evaluated_in(folder)
        evaluations = [
            {
                "iteration": own["iteration"],
                "pass_at_1": own["pass_at_1"],
                "tokens": own["response_length_tokens"],
                **habits_of(evaluated[own["iteration"]]),
            }
            for own in result["evaluations"]
        ]
        words = {w: [line[f"train/reflection/word/{w}"] for line in lines] for w in WORDS}
        kept = {key: result[key] for key in ("variant", "seed", "seconds", "final")}
        found.append({**kept, "words": words, "evaluations": evaluations})
    return found


def reached(rates: Sequence[float], share: float) -> int | None:
    """Return the first iteration at which a word has a share of its rate at the end, if it has one.

    >>> reached([0.0] * 10 + [1.0] * 10, 0.1), reached([1.0] * 20, 0.5)
    (8, 2)
    """
    iterations, means = smooth(rates, WINDOW)
    if means[-1] == 0:
        return None
    return int(iterations[np.argmax(means >= share * means[-1])])


def as_table(results: Sequence[Record]) -> str:
    """Return a row a base, as Markdown: mean ± standard error over seeds, and their differences."""

    def rates(run: Record) -> list[float]:
        return run["words"][WORDS[0]]

    first, last = (lambda run, i=i: float(smooth(rates(run), WINDOW)[1][i]) for i in (0, -1))
    tenth, half = (lambda run, share=share: reached(rates(run), share) for share in (0.1, 0.5))
    _, last_pass = ends("pass_at_1")
    columns: list[Column] = [
        ("near misses verified", ends("deceptive_checked"), ".3f"),
        ("pass@1", ends("pass_at_1"), ".3f"),
        ("tokens", ends("tokens"), ".0f"),
        (f"*{WORDS[0]}* per response", (first, last), ".3f"),
        ("a tenth of it at iteration", tenth, ".0f"),
        ("half of it", half, ".0f"),
    ]
    (one, ours), (other, others) = group_by("variant", results).items()
    measures = {"a tenth of it at iteration": tenth, "half of it": half, "pass@1": last_pass}
    compared = [([name], by_seed(ours, others, value)) for name, value in measures.items()]
    table = seed_table(compared, [f"{one} less {other}"], ".3g")
    return f"{table_by('variant', results, columns, 'base')}\n\n{table}"


def draw(results: Sequence[Record]) -> Figure:
    """Return the figure: the word, checks and accuracy along training, a line a base."""
    figure = Figure(figsize=(14, 4.4), dpi=110, layout="constrained")
    word, checks, accuracy = figure.subplots(1, 3)
    for index, (variant, own) in enumerate(group_by("variant", results).items()):
        color, marker, _ = style_of(index)
        rates = [by_iteration(run) for run in own]
        draw_band(word, rates, itemgetter("rate"), str(variant), color, "-")
        for axes, key in ((checks, "deceptive_checked"), (accuracy, "pass_at_1")):
            draw_band(axes, own, itemgetter(key), str(variant), color, f"{marker}-")
    rate = f"per response, mean of {WINDOW} iterations"
    tidy(word, f"{WORDS[0].capitalize()}, in training", xlabel="iteration", ylabel=rate)
    tidy(checks, "Near misses verified", xlabel="iteration", ylabel="share, held out")
    tidy(accuracy, "Accuracy", xlabel="iteration", ylabel="pass@1, held out")
    word.legend(frameon=False, fontsize=9)
    return figure


def by_iteration(run: Record) -> Record:
    """Return the word's rates as `draw_band` wants them, each at the middle of its iterations."""
    means = zip(*smooth(run["words"][WORDS[0]], WINDOW), strict=True)
    return {"evaluations": [{"iteration": int(i), "rate": float(rate)} for i, rate in means]}


def report(results: Sequence[Record]) -> tuple[str, Figure]:
    """Return table and figure."""
    return as_table(results), draw(results)
