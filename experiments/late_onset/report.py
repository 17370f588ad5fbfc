"""The page of late onset: *wait* and checks along training, by how seldom the base checks."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

import numpy as np
from matplotlib.figure import Figure

from experiments.by_source import evaluations
from experiments.curves import draw_band, smooth, style_of
from experiments.earned_length.levels import habits_of
from experiments.measures import group_by, mean_cell
from experiments.page import as_markdown
from experiments.points import Sweep
from r1lit.callbacks.figures import tidy
from r1lit.files import Record, read_records

WORDS = ("wait", "verify", "check")
"""What begins a check; the first is the paper's (Fig. 9b), and the page's."""
WINDOW = 5
"""Iterations that a rate of a word is the mean of."""


def read(sweep: Sweep) -> list[Record]:
    """Return each finished point: words of checks in training, and its evaluations with habits."""
    found = []
    for result, folder in sweep.runs():
        lines = read_records(folder / "metrics.jsonl")
        evaluated = evaluations(read_records(folder / "responses.jsonl"))
        found.append(
            {
                **{key: result[key] for key in ("variant", "seed", "seconds", "final")},
                "words": {w: [line[f"train/reflection/word/{w}"] for line in lines] for w in WORDS},
                "evaluations": [
                    {
                        "iteration": own["iteration"],
                        "pass_at_1": own["pass_at_1"],
                        "tokens": own["response_length_tokens"],
                        **habits_of(evaluated[own["iteration"]]),
                    }
                    for own in result["evaluations"]
                ],
            }
        )
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
    """Return a row a base, as Markdown: mean ± standard error over seeds."""
    rows = []
    for variant, own in group_by("variant", results).items():
        rates = [r["words"][WORDS[0]] for r in own]
        ends = [(r["evaluations"][0], r["evaluations"][-1]) for r in own]
        cells = [str(variant), str(len(own))]
        for key, form in (("deceptive_checked", ".3f"), ("pass_at_1", ".3f"), ("tokens", ".0f")):
            cells.append(" → ".join(mean_cell([e[i][key] for e in ends], form) for i in (0, 1)))
        cells.append(
            " → ".join(mean_cell([smooth(r, WINDOW)[1][i] for r in rates], ".3f") for i in (0, -1))
        )
        cells += [mean_cell([reached(r, share) for r in rates], ".0f") for share in (0.1, 0.5)]
        rows.append(cells)
    headings = ["base", "n seeds", "checks what only seems right", "pass@1", "tokens"]
    headings += [f"*{WORDS[0]}* per response", "a tenth of it at iteration", "half of it"]
    return as_markdown(headings, rows)


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
    for axes, title, label in (
        (
            word,
            f"{WORDS[0].capitalize()}, in training",
            f"per response, mean of {WINDOW} iterations",
        ),
        (checks, "Checks of what only seems right", "share, held out"),
        (accuracy, "Accuracy", "pass@1, held out"),
    ):
        tidy(axes, title, xlabel="iteration", ylabel=label)
    word.legend(frameon=False, fontsize=9)
    return figure


def by_iteration(run: Record) -> Record:
    """Return the word's rates as `draw_band` wants them, each at the middle of its iterations."""
    means = zip(*smooth(run["words"][WORDS[0]], WINDOW), strict=True)
    return {"evaluations": [{"iteration": int(i), "rate": float(rate)} for i, rate in means]}


def report(results: Sequence[Record]) -> tuple[str, Figure]:
    """Return table and figure."""
    return as_table(results), draw(results)
