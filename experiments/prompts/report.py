"""Table and figure of a suite: each prompt compared with the first one."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from experiments.page import END, START, write_into
from experiments.paired import over_problems
from experiments.points import shares_of
from experiments.prompts.suite import Suite
from experiments.report import COLORS, group_by, mean_cell
from r1lit.callbacks.figures import add_caption, tidy
from r1lit.jsonl import Record
from r1lit.metrics import holm

KEPT = ("pass_at_1", "response_length", "eval_metrics", "num_problems", "num_samples")


def compare(suite: Suite) -> list[Record]:
    """Return a record for each policy and prompt with evaluations, compared with the first prompt.

    ``difference``, ``low``, ``high``, ``p`` and ``p_holm`` are of pass@1 less that of the first
    prompt, over the seeds that both have; None where there are none.
    """
    first = next(iter(suite.prompts))
    rows: list[Record] = []
    for policy in suite.policies:
        plain = suite.reports(policy, first)
        for prompt in suite.prompts_of(policy):
            reports = suite.reports(policy, prompt)
            if not reports:
                continue
            both = [seed for seed in reports if seed in plain and prompt != first]
            shares = (
                [shares_of(suite.folder(policy, p, s)) for s in both] for p in (prompt, first)
            )
            found = over_problems(*shares) if both else None
            keys = ("difference", "low", "high", "p")
            numbers = (found.mean, found.low, found.high, found.p_value) if found else [None] * 4
            own = {"policy": policy, "prompt": prompt, "reports": reports}
            rows.append(own | dict(zip(keys, numbers, strict=True)) | {"p_holm": None})
    compared = [row for row in rows if row["p"] is not None]
    for row, p_value in zip(compared, holm([row["p"] for row in compared]), strict=True):
        row["p_holm"] = p_value
    return rows


def as_table(rows: Sequence[Record]) -> str:
    """Return the Markdown table: a row a policy and prompt, compared with the first prompt."""
    if not rows:
        return "Not run yet."
    lines = [
        f"| policy | prompt | n seeds | pass@1 | less {rows[0]['prompt']}, 95 % interval | p |"
        " p, Holm | tokens | well-formed | language consistency |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        own = list(row["reports"].values())
        cells = [row["policy"], row["prompt"], str(len(own))]
        cells += [mean_cell([r["pass_at_1"]["value"] for r in own], ".3f")]
        if row["p"] is None:
            cells += ["", "", ""]
        else:
            interval = f"{row['difference']:+.3f} ({row['low']:+.3f} to {row['high']:+.3f})"
            cells += [interval, f"{row['p']:.2g}", f"{row['p_holm']:.2g}"]
        cells.append(mean_cell([r["response_length"]["mean"] for r in own], ".0f"))
        for metric in ("format", "language_consistency"):
            cells.append(mean_cell([r["eval_metrics"].get(metric) for r in own], ".3f"))
        lines.append("| " + " | ".join(cells) + " |")
    num_compared = sum(row["p"] is not None for row in rows)
    said = (
        "pass@1, tokens, format and consistency: mean ± standard error over seeds. Differences are"
        f" paired by problem, over the seeds' means; Holm's correction is for {num_compared}"
        " comparisons."
    )
    return "\n".join([*lines, "", said])


def draw(rows: Sequence[Record]) -> Figure:
    """Return the figure: each prompt's difference from the first, a panel a policy."""
    compared = group_by("policy", [row for row in rows if row["p"] is not None])
    prompts = list(dict.fromkeys(row["prompt"] for own in compared.values() for row in own))
    figure = Figure(figsize=(3.6 * len(compared) + 1.5, 4.2), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(compared), sharey=True, squeeze=False)[0]
    for axes, color, (policy, own) in zip(panels, itertools.cycle(COLORS), compared.items()):
        places = [prompts.index(row["prompt"]) for row in own]
        means = [row["difference"] for row in own]
        reach = [[m - row["low"] for m, row in zip(means, own, strict=True)],
                 [row["high"] - m for m, row in zip(means, own, strict=True)]]  # fmt: skip
        axes.errorbar(means, places, xerr=reach, fmt="o", capsize=4, color=color)
        axes.axvline(0, color="0.6", linewidth=1)
        axes.set_yticks(range(len(prompts)), prompts)
        tidy(axes, policy, xlabel=f"pass@1 less {rows[0]['prompt']}")
    panels[0].invert_yaxis()
    seeds = max(len(row["reports"]) for row in rows)
    problems = next(iter(rows[0]["reports"].values()))["num_problems"]
    add_caption(figure, f"{problems} held-out problems, {seeds} seeds; bars: 95 % over problems")
    return figure


def write(suite: Suite) -> None:
    """Write table and figure into the report; one that is not there is made.

    Raises:
        ValueError: if the report has no place for it.
    """
    rows = compare(suite)
    text = None if suite.report.exists() else f"# {suite.output.name}\n\n{START}\n{END}\n"
    raw = [
        {"policy": row["policy"], "prompt": row["prompt"], "seed": seed}
        | {key: report[key] for key in KEPT}
        | {"shares": shares_of(suite.folder(row["policy"], row["prompt"], seed))}
        for row in rows
        for seed, report in row["reports"].items()
    ]
    figure = draw(rows) if any(row["p"] is not None for row in rows) else None
    image = f"{suite.output.name}.png"
    write_into(suite.report, as_table(rows), figure, image, raw, text)
