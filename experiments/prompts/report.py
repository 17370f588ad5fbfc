"""Table and figure of a suite: each prompt compared with the first one."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from matplotlib.figure import Figure

from experiments.curves import COLORS
from experiments.measures import group_by, mean_cell
from experiments.page import END, START, as_markdown, write_into
from experiments.paired import difference_cells, over_problems
from experiments.points import shares_of
from experiments.prompts.suite import Suite
from r1lit.callbacks.figures import add_caption, tidy
from r1lit.files import Record
from r1lit.metrics import holm

KEPT = ("pass_at_1", "response_length", "eval_metrics", "num_problems", "num_samples")


def compare(suite: Suite) -> list[Record]:
    """Return a record for each policy and prompt with evaluations, compared with the first prompt.

    ``found`` is the difference of pass@1 from that of the first prompt, over the seeds that both
    have, and ``p_holm`` its p after correction for all; both None where there are none.
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
            own = {"policy": policy, "prompt": prompt, "first": first, "reports": reports}
            rows.append({**own, "found": found, "p_holm": None})
    compared = compared_in(rows)
    corrected = holm([row["found"].p_value for row in compared])
    for row, p_value in zip(compared, corrected, strict=True):
        row["p_holm"] = p_value
    return rows


def compared_in(rows: Sequence[Record]) -> list[Record]:
    """Return the records that have a difference from the first prompt."""
    return [row for row in rows if row["found"] is not None]


def as_table(rows: Sequence[Record]) -> str:
    """Return the Markdown table: a row a policy and prompt, compared with the first prompt."""
    if not rows:
        return "Not run yet."
    headings = ["policy", "prompt", "n seeds", "pass@1", f"less {rows[0]['first']}, 95 % interval"]
    headings += ["p", "p, Holm", "tokens", "well-formed", "language consistency"]
    table = []
    for row in rows:
        own = list(row["reports"].values())
        cells = [row["policy"], row["prompt"], str(len(own))]
        cells += [mean_cell([r["pass_at_1"]["value"] for r in own], ".3f")]
        found = row["found"]
        cells += ["", "", ""] if found is None else difference_cells(found, row["p_holm"])
        cells.append(mean_cell([r["response_length"]["mean"] for r in own], ".0f"))
        for metric in ("format", "language_consistency"):
            cells.append(mean_cell([r["eval_metrics"].get(metric) for r in own], ".3f"))
        table.append(cells)
    said = (
        "pass@1, tokens, format and consistency: mean ± standard error over seeds. Differences are"
        f" paired by problem, over the seeds' means; Holm's correction is for"
        f" {len(compared_in(rows))}"
        " comparisons."
    )
    return f"{as_markdown(headings, table, num_text=2)}\n\n{said}"


def draw(rows: Sequence[Record]) -> Figure:
    """Return the figure: each prompt's difference from the first, a panel a policy."""
    compared = group_by("policy", compared_in(rows))
    prompts = list(dict.fromkeys(row["prompt"] for own in compared.values() for row in own))
    figure = Figure(figsize=(3.6 * len(compared) + 1.5, 4.2), dpi=110, layout="constrained")
    panels = figure.subplots(1, len(compared), sharey=True, squeeze=False)[0]
    for axes, color, (policy, own) in zip(panels, itertools.cycle(COLORS), compared.items()):
        places = [prompts.index(row["prompt"]) for row in own]
        found = [row["found"] for row in own]
        reach = [[d.mean - d.low for d in found], [d.high - d.mean for d in found]]
        axes.errorbar([d.mean for d in found], places, xerr=reach, fmt="o", capsize=4, color=color)
        axes.axvline(0, color="0.6", linewidth=1)
        axes.set_yticks(range(len(prompts)), prompts)
        tidy(axes, policy, xlabel=f"pass@1 less {rows[0]['first']}")
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
    figure = draw(rows) if compared_in(rows) else None
    image = f"{suite.output.name}.png"
    write_into(suite.report, as_table(rows), figure, image, raw, text)
