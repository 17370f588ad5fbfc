"""Tables and figure of the experiment, for README.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from experiments.curves import COLORS
from experiments.measures import group_by, mean_cell
from experiments.page import as_markdown, write_into
from experiments.process_rewards import labels, rerank
from r1lit.callbacks.figures import add_caption, seeds_of, tidy
from r1lit.files import Record

COLUMNS = ("accuracy", "majority_accuracy", "auroc", "error_accuracy", "correct_accuracy", "f1")


def models_table(results: Sequence[Record]) -> str:
    """Return what models say of held-out steps (process) or responses (outcome), as Markdown."""
    headings = ["model", "n seeds", "accuracy", "of the commoner label", "AUROC"]
    headings += ["wrong solutions found", "right ones kept", "F1 of first errors"]
    rows = []
    for name, own in group_by("variant", results).items():
        reports = [result["final"]["reward_model"] for result in own]
        cells = [mean_cell([report.get(key) for report in reports], ".3f") for key in COLUMNS]
        rows.append([name, str(len(own)), *cells])
    return as_markdown(headings, rows)


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
    shown = ("majority", rerank.OUTCOME, "prm-soft, last", "prm-soft, vote", "prm-exact, last",
             "verifier (pass@n)")  # fmt: skip
    for color, method in zip(COLORS, shown, strict=False):
        own = [row for row in rows if row["method"] == method]
        right.errorbar(
            [row["n"] for row in own], [row["accuracy"] for row in own],
            yerr=[row["stderr"] for row in own], marker="o", ms=4, color=color, label=method,
        )  # fmt: skip
    labels = {"xlabel": "responses to choose from, n", "ylabel": "accuracy, ± 1 s.e. over problems"}
    tidy(right, "Accuracy of the chosen one", xscale="log", **labels)
    right.legend(frameon=False, fontsize=8)
    return figure


def write_report(
    errors: Sequence[Record],
    num_steps: int,
    num_truth: int,
    results: Sequence[Record],
    rows: Sequence[Record],
    folder: Path,
    policy: str,
) -> str:
    """Fill the tables into ``folder``'s README.md, draw its process_rewards.png; return them."""
    block = "\n\n".join(
        [
            "### Labels",
            labels.as_table(errors, num_steps, num_truth),
            "### Models, on responses to held-out problems",
            models_table(results),
            "### One of n responses",
            rerank.as_table(rows),
            rerank.paired_table(rows, rerank.OUTCOME),
        ]
    )
    raw = [
        {"table": table, **record}
        for table, records in (("labels", errors), ("models", results), ("choosing", rows))
        for record in records
    ]
    figure = draw(errors, rows)
    add_caption(figure, f"responses of {policy}; models of {seeds_of(r['seed'] for r in results)}")
    write_into(folder / "README.md", block, figure, "process_rewards.png", raw)
    return block
