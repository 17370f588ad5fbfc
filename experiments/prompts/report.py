"""Page of the prompts: each prompt's accuracy compared with that of the first one, by policy."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from matplotlib.figure import Figure

from experiments.curves import COLORS
from experiments.study import Study
from experiments.tables import as_markdown, difference_cells, group_by, mean_cell, over_problems
from r1lit.callbacks.figures import add_caption, tidy
from r1lit.files import Record
from r1lit.metrics.seeds import holm

KEPT = ("pass_at_1", "response_length", "eval_metrics", "num_problems", "num_samples")


def read(study: Study) -> list[Record]:
    """Return a record for each finished evaluation."""
    records = []
    for result in study.sweep().results():
        policy, prompt = result["variant"].split("+")
        own = {"policy": policy, "prompt": prompt, "seed": result["seed"]}
        own |= {key: result["report"][key] for key in KEPT}
        records.append({**own, "shares": result["shares"]})
    return records


def compare(records: Sequence[Record]) -> list[Record]:
    """Return a row for each policy and prompt, compared with the first prompt.

    ``found`` is the difference of pass@1 from that of the first prompt, over the seeds that both
    have, and ``p_holm`` its p after correction for all; both None where there are none.
    """
    first = records[0]["prompt"]
    rows: list[Record] = []
    for policy, of_policy in group_by("policy", records).items():
        prompts = {
            prompt: {record["seed"]: record for record in own}
            for prompt, own in group_by("prompt", of_policy).items()
        }
        plain = prompts.get(first, {})
        for prompt, reports in prompts.items():
            both = [seed for seed in reports if seed in plain and prompt != first]
            shares = ([runs[s]["shares"] for s in both] for runs in (reports, plain))
            found = over_problems(*shares) if both else None
            rows.append({"policy": policy, "prompt": prompt, "first": first,
                         "reports": list(reports.values()), "found": found})  # fmt: skip
    corrected = iter(holm([row["found"].p_value for row in rows if row["found"]]))
    return [{**row, "p_holm": next(corrected) if row["found"] else None} for row in rows]


def as_table(rows: Sequence[Record]) -> str:
    """Return the Markdown table: a row a policy and prompt, compared with the first prompt."""
    headings = ["policy", "prompt", "n seeds", "pass@1", f"less {rows[0]['first']}, 95 % interval"]
    headings += ["p", "p, Holm", "tokens", "well-formed", "language consistency"]
    table = []
    for row in rows:
        own = row["reports"]
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
        " paired by problem, over the seeds' means; Holm's correction is for"
        f" {sum(row['found'] is not None for row in rows)} comparisons."
    )
    return f"{as_markdown(headings, table, num_text=2)}\n\n{said}"


def draw(rows: Sequence[Record]) -> Figure:
    """Return the figure: each prompt's difference from the first, a panel a policy."""
    compared = group_by("policy", [row for row in rows if row["found"]])
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
    problems = rows[0]["reports"][0]["num_problems"]
    add_caption(figure, f"{problems} held-out problems, {seeds} seeds; bars: 95 % over problems")
    return figure


def report(records: Sequence[Record]) -> tuple[str, Figure | None]:
    """Return the table and the figure; no figure where nothing can be compared."""
    rows = compare(records)
    return as_table(rows), draw(rows) if any(row["found"] for row in rows) else None
