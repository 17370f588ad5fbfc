"""Page of process rewards: errors of labels, models, and accuracy of the chosen response."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from experiments.curves import COLORS, style_of
from experiments.process_rewards import choosing
from experiments.study import Study
from experiments.tables import as_markdown, group_by, number, table_by
from r1lit.callbacks.figures import add_caption, seeds_of, tidy
from r1lit.files import Record, read_records
from r1lit.metrics import mean_and_error

COLUMNS = ("accuracy", "majority_accuracy", "auroc", "error_accuracy", "correct_accuracy", "f1")


def read(study: Study) -> list[Record]:
    """Return what is measured, each record with its ``table``; nothing before the end."""
    made = study.output / "seed-0"
    if not (made / "choosing/accuracies.jsonl").exists():
        return []
    tables = {
        "labels": read_records(made / "labels/errors.jsonl"),
        "models": [r for r in study.sweep().results() if r["seed"] in study.seeds],
        "choosing": read_records(made / "choosing/accuracies.jsonl"),
    }
    return [{"table": table, **record} for table, own in tables.items() for record in own]


def labels_table(rows: Sequence[Record]) -> str:
    """Return the errors of labels by N, as Markdown."""
    headings = ["N", "error of the soft label", "of binomial noise alone", "hard label is true"]
    headings += ["soft label, rounded, is true", "hard label 1 where nothing leads on"]
    keys = ("rmse", "expected", "hard", "soft", "optimistic")
    cells = [[str(row["n"]), *(f"{row[key]:.3f}" for key in keys)] for row in rows]
    steps, truth = (rows[0].get(key) for key in ("num_steps", "num_truth"))
    said = f"{steps} steps; values from {truth} other completions each."
    return f"{said}\n\n{as_markdown(headings, cells, num_text=0)}"


def models_table(results: Sequence[Record]) -> str:
    """Return what models say of held-out steps (process) or responses (outcome), as Markdown."""
    headings = ["accuracy", "of the commoner label", "AUROC"]
    headings += ["wrong solutions found", "right ones kept", "F1 of first errors"]
    columns = [
        (heading, number("final", "reward_model", key), ".3f")
        for heading, key in zip(headings, COLUMNS, strict=True)
    ]
    return table_by("variant", results, columns, "model")


def draw(errors: Sequence[Record], rows: Sequence[Record]) -> Figure:
    """Return the figure: error of labels against N, accuracy against n."""
    figure = Figure(figsize=(10, 4.2), dpi=110, layout="constrained")
    left, right = figure.subplots(1, 2)
    sizes = [row["n"] for row in errors]
    left.plot(sizes, [r["rmse"] for r in errors], marker="o", color=COLORS[0], label="measured")
    left.plot(sizes, [r["expected"] for r in errors], color="0.5", ls=":", label="binomial noise")
    labels = {"xlabel": "completions from a step, N", "ylabel": "root mean square error"}
    tidy(left, "Error of soft labels", xscale="log", yscale="log", **labels)
    left.legend(frameon=False)
    of_outcome = {r["n"]: r["shares"] for r in rows if r["method"] == choosing.OUTCOME}
    shown = ("prm-soft, last", "prm-soft, vote", "prm-exact, last", "verifier (pass@n)")
    for index, method in enumerate(shown):
        color, marker, _ = style_of(index)
        own = [row for row in rows if row["method"] == method]
        found = [
            mean_and_error(
                [a - b for a, b in zip(row["shares"], of_outcome[row["n"]], strict=True)]
            )
            for row in own
        ]
        places = [row["n"] * 1.04 ** (index - 1.5) for row in own]
        right.errorbar(places, [m for m, _ in found], [e or 0.0 for _, e in found], marker=marker,
                       ms=5, capsize=2, color=color, label=method)  # fmt: skip
    right.axhline(0, color="0.6", linewidth=1)
    labels = {
        "xlabel": "responses to choose from, n",
        "ylabel": "difference, ± 1 s.e. over problems",
    }
    tidy(right, "Accuracy less the outcome model's", xscale="log", **labels)
    for axes, ticks in ((left, sizes), (right, sorted(of_outcome))):
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.xaxis.set_minor_locator(NullLocator())
    left.set_yticks([0.07, 0.1, 0.15, 0.2, 0.3], ["0.07", "0.10", "0.15", "0.20", "0.30"])
    left.yaxis.set_minor_locator(NullLocator())
    right.legend(frameon=False, fontsize=8)
    return figure


def report(records: Sequence[Record]) -> tuple[str, Figure]:
    """Return the tables and the figure."""
    errors, results, rows = group_by("table", records).values()
    block = [
        "### Labels",
        labels_table(errors),
        "### Models, on responses to held-out problems",
        models_table(results),
        "### One of n responses",
        choosing.as_table(rows),
        choosing.paired_table(rows, choosing.OUTCOME),
    ]
    figure = draw(errors, rows)
    seeds = seeds_of(r["seed"] for r in results)
    add_caption(figure, f"responses of models/mini; models of {seeds}")
    return "\n\n".join(block), figure
