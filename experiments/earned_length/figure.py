"""The figure of earned length: accuracy, length, words and checks along training, and by level."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from experiments.curves import COLORS, draw_band, smooth
from r1lit.callbacks.figures import add_caption, tidy
from r1lit.files import Record

LONGEST_PAGES = 127
"""Tokens of the longest hundredth of the corpus's responses, in the mean."""
WORDS = ("wait", "verify", "check", "but", "however")
HABITS = {
    "gives_up_per_attempt": "gives up after an attempt",
    "deceptive_checked": "checks what only seems right",
    "wrong_glances": "glances wrongly",
    "wrong_equations": "computes wrongly",
}


def draw(seeds: Sequence[Record]) -> Figure:
    """Return the figure: accuracy, length, words and checks along training, and by level."""
    figure = Figure(figsize=(14, 8.2), dpi=110, layout="constrained")
    (accuracy, length, words), (by_accuracy, by_tokens, checks) = figure.subplots(2, 3)
    for place, (key, name) in enumerate((("pass_at_1", "pass@1"), ("cons", "majority vote"))):
        draw_band(accuracy, seeds, itemgetter(key), name, COLORS[place], "o-")
    for place, seed in enumerate(seeds):
        color = COLORS[place % len(COLORS)]
        length.plot(seed["tokens"], color=color, linewidth=1, label=_name(seed))
    length.axhline(LONGEST_PAGES, color="#444444", linestyle=":", label="longest pages")
    for place, word in enumerate(WORDS):
        middles, means = np.mean([smooth(seed["words"][word]) for seed in seeds], axis=0)
        words.plot(middles, means, color=COLORS[place], label=word)
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
        (checks, "Habits", "share of attempts"),
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
