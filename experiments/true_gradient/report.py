"""Tables of bias and noise by staleness, and a figure of cosines by checkpoint and staleness."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from experiments.curves import draw_cells
from experiments.study import Study
from experiments.tables import as_markdown
from r1lit.callbacks.figures import add_caption, tidy
from r1lit.files import Record, read_records

FILES = ("base.jsonl", "early.jsonl", "late.jsonl")
MEASURES = ("cosine_mean", "noise", "cosine")
TITLES = ("Expected gradient (bias)", "One batch (bias and noise)")


def read(study: Study) -> list[Record]:
    """Return the lines of all checkpoints that are measured."""
    return [line for run in study.runs for name in FILES for line in read_records(run / name)]


def in_order(values: Sequence[Record], key: str) -> list:
    """Return the different values of a key, in the order of their first line."""
    return list(dict.fromkeys(value[key] for value in values))


def updates(num: int) -> str:
    """Return a number of updates in words."""
    return f"{num} update" if num == 1 else f"{num} updates"


def same(one: Record, two: Record) -> bool:
    """Return whether two lines have the same numbers, to the rounding of sums."""
    pairs = [(one[m], two[m]) for m in MEASURES]
    return all(a == b or (None not in (a, b) and abs(a - b) <= 2e-4 * max(1, abs(a)))
               for a, b in pairs)  # fmt: skip


def merged(lines: Sequence[Record]) -> list[tuple[list[str], list[Record]]]:
    """Return estimators that coincide at every checkpoint, each with its lines."""
    rows: list[tuple[list[str], list[Record]]] = []
    for name in in_order(lines, "estimator"):
        own = [line for line in lines if line["estimator"] == name]
        for names, first in rows:
            if all(same(a, b) for a, b in zip(first, own, strict=True)):
                names.append(name)
                break
        else:
            rows.append(([name], own))
    return rows


def cell(line: Record, measure: str) -> str:
    """Return a number with the half-width of its 95 % interval; a dash for none."""
    if line[measure] is None:
        return "–"
    digits = 2 if measure == "noise" else 3
    return f"{line[measure]:.{digits}f} ± {1.96 * line[f'{measure}_se']:.{digits}f}"


def table_of(lines: Sequence[Record]) -> str:
    """Return the table of one staleness, the estimators nearest to the truth first."""
    checkpoints = in_order(lines, "checkpoint")
    headings = ["estimator"]
    for name in checkpoints:
        headings += [f"{name}: expected cosine", "noise", "cosine of a batch"]
    rows = sorted(merged(lines), key=lambda row: -sum(line["cosine"] or 0 for line in row[1]))
    return as_markdown(
        headings,
        [[", ".join(names), *(cell(line, m) for line in own for m in MEASURES)]
         for names, own in rows],
    )  # fmt: skip


def table_of_truth(lines: Sequence[Record]) -> str:
    """Return what the checkpoints are, and how well their true gradients are known."""
    headings = ["checkpoint", "updates later", "samples", "accuracy", "tokens", "KL(old, present)",
                "effective share of samples", "error of the true gradient"]  # fmt: skip
    rows = [
        [line["checkpoint"], str(line["stale"]), f"{line['samples']:,}", f"{line['accuracy']:.3f}",
         f"{line['length']:.1f}", f"{line['kl_old']:.1e}", f"{line['effective_share']:.3f}",
         f"{line['relative_error']:.1%}"]
        for line in lines
    ]  # fmt: skip
    return as_markdown(headings, rows)


def draw(lines: Sequence[Record]) -> Figure:
    """Return the figure: expected cosines and those of single batches, by checkpoint and age.

    Estimators that coincide in every cell share a row; those nearest to the truth come first.
    """
    checkpoints, stales = in_order(lines, "checkpoint"), in_order(lines, "stale")
    by_cell = sorted(lines, key=lambda x: (checkpoints.index(x["checkpoint"]), x["stale"]))
    rows = sorted(merged(by_cell), key=lambda row: -sum(x["cosine_mean"] or 0 for x in row[1]))
    height = 2.0 + 0.29 * len(rows)
    figure = Figure(figsize=(13, height), dpi=110, layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, measure, title in zip(panels, ("cosine_mean", "cosine"), TITLES, strict=True):
        cells = [
            [None if x[measure] is None else min(x[measure], 1.0) for x in own] for _, own in rows
        ]
        image = draw_cells(axes, cells, [", ".join(names) for names, _ in rows],
                           [str(stale) for _ in checkpoints for stale in stales],
                           cmap="RdBu", vmin=-1, vmax=1)  # fmt: skip
        for index, checkpoint in enumerate(checkpoints):
            left = index * len(stales) - 0.5
            axes.text(left + len(stales) / 2, -0.6, checkpoint, ha="center", va="bottom")
            axes.axvline(left, color="white", linewidth=6)
        tidy(axes, xlabel="updates since the rollout")
        axes.set_title(title, loc="left", fontweight="bold", fontsize=12, pad=22)
        axes.grid(visible=False)
        axes.tick_params(length=0)
    figure.colorbar(image, ax=panels, label="cosine with the true gradient", pad=0.01)
    add_caption(
        figure,
        "Above the columns: the checkpoint. Batches of 64 groups of 8 responses; 1,024 parameters"
        " of the last layer; 95 % intervals are in the tables; –: a batch without direction",
    )
    return figure


def report(lines: Sequence[Record]) -> tuple[str, Figure]:
    """Return the tables and the figure."""
    truth = [line for line in lines if line["estimator"] == "true"]
    others = [line for line in lines if line["estimator"] != "true"]
    blocks = [table_of_truth(truth)]
    for stale in in_order(others, "stale"):
        own = [line for line in others if line["stale"] == stale]
        when = f"{updates(stale)} after the rollout" if stale else "On policy (the first update)"
        blocks.append(f"**{when}.**\n\n{table_of(own)}")
    return "\n\n".join(blocks), draw(others)
