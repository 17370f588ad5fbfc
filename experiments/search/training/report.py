"""Page of search as training: accuracy against tokens generated, MCTS against GRPO."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import combinations

from matplotlib.figure import Figure

from experiments.curves import at_tokens, read_curves, style_of
from experiments.search.training.collector import SEARCH_TOKENS
from experiments.study import Study
from experiments.tables import Column, by_seed, group_by, seed_table, table_by
from r1lit.callbacks.figures import tidy
from r1lit.files import Record
from r1lit.metrics import mean

NUM_MARKS = 8  # of a mean curve
LAST = (
    (SEARCH_TOKENS, "tokens searched a token kept", ".0f"),
    ("train/reward/accuracy", "found right", ".3f"),
    ("train/explained_variance", "explained variance", ".2f"),
    ("train/search/share_distinct", "distinct responses", ".2f"),
    ("train/entropy", "entropy", ".2f"),
)


def read(study: Study) -> list[Record]:
    """Return each finished point with its curve over the tokens of its searches."""
    return read_curves(study.sweep(), keys=(SEARCH_TOKENS, "train/num_tokens"))


def as_table(results: Sequence[Record]) -> str:
    """Return the Markdown: a row a variant, at the tokens that all have reached, and all pairs."""
    shared = min(result["curve"][-1][0] for result in results)
    columns: list[Column] = [
        (f"pass@1 at {shared / 1e6:.2f} M tokens", lambda r: at_tokens(r["curve"], shared), ".3f"),
        ("pass@1 at the end", lambda r: r["curve"][-1][1], ".3f"),
        ("M tokens at the end", lambda r: r["curve"][-1][0] / 1e6, ".2f"),
        ("seconds", lambda r: r["seconds"], ".0f"),
    ]
    columns += [(f"{name}, last", partial(_last, key), form) for key, name, form in LAST]
    return f"{table_by('variant', results, columns)}\n\n{compared(results, shared)}"


def compared(results: Sequence[Record], shared: float) -> str:
    """Return the Markdown table of all pairs of variants, at so many tokens."""
    groups = group_by("variant", results)
    pairs = [
        ([f"{other} less {one}"],
         by_seed(groups[other], groups[one], lambda r: at_tokens(r["curve"], shared)))
        for one, other in combinations(groups, 2)
    ]  # fmt: skip
    return seed_table(pairs, [f"pass@1 at {shared / 1e6:.2f} M tokens"])


def _last(key: str, run: Record) -> float | None:
    """Return a number of the last iteration; of the searches' tokens those a token kept."""
    line = run["lines"][-1]
    value = line.get(key)
    if key == SEARCH_TOKENS and value is not None:
        return value / line["train/num_tokens"]
    return value


def draw(results: Sequence[Record]) -> Figure:
    """Return the figure: held-out accuracy over tokens generated, the mean and each seed."""
    figure = Figure(figsize=(8, 4.6), dpi=110, layout="constrained")
    axes = figure.subplots()
    for index, (variant, group) in enumerate(group_by("variant", results).items()):
        color, marker, _ = style_of(index)
        for result in group:
            x, y = zip(*result["curve"], strict=True)
            axes.plot([v / 1e6 for v in x], y, color=color, linewidth=0.6, alpha=0.5)
        most = min(result["curve"][-1][0] for result in group)
        xs = [most * i / NUM_MARKS for i in range(NUM_MARKS + 1)]
        ys = [mean([at_tokens(result["curve"], x) for result in group]) for x in xs]
        axes.plot(
            [x / 1e6 for x in xs], ys, color=color, marker=marker, markersize=4, label=variant
        )
    labels = {"xlabel": "tokens generated, millions", "ylabel": "pass@1, held out"}
    tidy(axes, "Search as training against GRPO", **labels, ylim=(0, 1))
    axes.legend(frameon=False)
    return figure


def report(results: Sequence[Record]) -> tuple[str, Figure]:
    """Return table and figure."""
    return as_table(results), draw(results)
