"""The stage table of a run, or of several seeds of it.

    python -m experiments.r1.table runs/r1
    python -m experiments.r1.table runs/r1 runs/r1-seed-1 runs/r1-seed-2 --readme experiments/r1/README.md
    python -m experiments.r1.table experiments/r1/results/seed-0.json runs/r1-seed-1

For each run it reads ``eval/<stage>/`` and writes ``summary.json`` (``base``, ``stages``,
``distilled``, ``small_rl``, ``shape``), ``stages.md`` and ``stages.png``. It prints the table over
all runs, and which steps of the paper's shape hold. A ``summary.json`` may stand for the run that
wrote it; one without a base, as they were, has no row of it. ``--readme`` puts that between the markers of a README, and the figure beside it. One
run has standard errors over problems, several have them over runs.
"""  # noqa: E501

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.launch import command_line, reported
from experiments.page import write_into
from experiments.r1.figure import draw_stages
from experiments.r1.shape import PAPER, as_lines, check, combine
from experiments.r1.stages import BASE, COLUMNS, STUDENTS, Column, read_stages
from experiments.tables import as_markdown
from r1lit.callbacks.figures import save_png_and_pdf, seeds_of
from r1lit.files import replace_file, replace_json

MINI = "models/mini"
TITLES = {
    BASE: "the base",
    "zero": "R1-Zero",
    "dev1": "Dev1: cold start",
    "dev2": "Dev2: + reasoning RL",
    "dev3": "Dev3: SFT on its own best",
    "r1": "R1: + RL for all scenarios",
    "distilled": "distilled student",
    "small_rl": "student's base with RL",
}


def as_table(summary: dict[str, Any]) -> str:
    """Return the Markdown table: a row a stage, mean ± standard error."""
    rows = rows_of(summary)
    columns = [c for c in COLUMNS if c.always or any(r.get(c.key) is not None for r in rows)]
    cells = [[TITLES.get(r["name"], r["name"]), *(_cell(r, c) for c in columns)] for r in rows]
    return as_markdown(["", *(column.heading for column in columns)], cells)


def _cell(row: dict[str, Any], column: Column) -> str:
    value, error = row.get(column.key), row.get(f"{column.key}_se")
    if value is None:
        return "–"
    text = f"{value:{column.form}}"
    if column.key == "cons_at_16" and row["cons_k"] != 16:
        text += f" (k = {row['cons_k']})"
    return text if error is None else f"{text} ± {error:{column.form}}"


def seeds_table(summaries: Sequence[dict[str, Any]], seeds: Sequence[str]) -> str:
    """Return the Markdown table of reasoning by seed, a row a stage and measure.

    Nothing of a single seed. ``seeds`` are their names, in the order of the summaries.
    """
    if len(summaries) < 2:
        return ""
    by_name = [{row["name"]: row for row in rows_of(summary)} for summary in summaries]
    rows = []
    for name in dict.fromkeys(name for own in by_name for name in own):
        for column in COLUMNS:
            found = [own.get(name, {}).get(column.key) for own in by_name]
            if column.by_seed and any(value is not None for value in found):
                cells = ["–" if value is None else f"{value:{column.form}}" for value in found]
                rows.append([TITLES.get(name, name), column.heading, *cells])
    headings = ["by seed", "measure", *(f"seed {seed}" for seed in seeds)]
    return as_markdown(headings, rows, num_text=2)


def rows_of(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what was evaluated: the base, the stages, the students."""
    found = [summary.get(BASE), *summary["stages"], *(summary.get(name) for name in STUDENTS)]
    return [row for row in found if row]


def paper_table() -> str:
    """Return the paper's table of stages (v2, Table 3) as Markdown."""
    names = ("R1-Zero", "Dev1", "Dev2", "Dev3", "R1")
    rows = [[name, *(f"{row[i]:.1f}" for row in PAPER.values())] for i, name in enumerate(names)]
    return as_markdown(["the paper, v2 Table 3", *PAPER], rows)


def settings_note(summary: dict[str, Any], num_runs: int) -> str:
    """Say how the numbers were drawn and what the errors are."""
    parts = [
        f"{kind}: {of['num_problems']} held-out problems × {of['k']} responses, temperature"
        f" {of['temperature']}, top-p {of['top_p']}, at most {of['max_tokens']} tokens"
        for kind, of in summary["stages"][-1]["settings"].items()
    ]
    over = "over problems" if num_runs == 1 else f"over {num_runs} seeds"
    return f"Mean ± standard error {over}. {'; '.join(parts)}."


def runs_note(summaries: Sequence[dict[str, Any]], base: str = MINI) -> str:
    """Return which base and seeds summaries are of, for a caption."""
    known = {seed for summary in summaries for seed in _seeds(summary)}
    return "; ".join([f"stages from {base}", *([seeds_of(known)] if known else [])])


def write_run(run: Path, base: str = MINI) -> dict[str, Any]:
    """Write the summary, table and figure of one run; return the summary."""
    summary = read_stages(run)
    summary["shape"] = check([summary])
    replace_json(run / "summary.json", summary)
    replace_file(run / "stages.md", (block(summary, [summary]) + "\n").encode())
    save_png_and_pdf(draw_stages(summary["stages"], runs_note([summary], base)), run / "stages.png")
    return summary


def read_summary(path: Path) -> dict[str, Any]:
    """Return what an earlier call wrote as ``summary.json``.

    Raises:
        ValueError: if it is no such file.
    """
    try:
        summary = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path}: it is not JSON ({error})") from error
    if not isinstance(summary, dict) or not summary.get("stages"):
        raise ValueError(f"{path}: it has no stages; name a run folder or its summary.json")
    return summary


def block(summary: dict[str, Any], summaries: Sequence[dict[str, Any]]) -> str:
    """Return everything that is printed of one or several runs."""
    claims = "\n".join(as_lines(check(summaries)))
    note = settings_note(summary, len(summaries))
    seeds = [str(next(iter(_seeds(own)), place)) for place, own in enumerate(summaries)]
    by_seed = seeds_table(summaries, seeds)
    parts = [note, as_table(summary), by_seed, paper_table(), claims]
    return "\n\n".join(part for part in parts if part)


def _seeds(summary: dict[str, Any]) -> list[int]:
    """Return the seeds that a run's evaluations name; none where they name none."""
    settings = summary["stages"][-1]["settings"].values()
    return [own["seed"] for own in settings if own.get("seed") is not None]


@reported("table")
def main(args: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = command_line("experiments.r1.table", __doc__)
    parser.add_argument(
        "runs", nargs="+", type=Path, help="run folders, or their summary.json, one a seed"
    )
    parser.add_argument("--base", default=MINI, help="of the runs, for captions")
    parser.add_argument("--readme", type=Path, help="a README whose results are filled in")
    options = parser.parse_args(args)
    summaries = [
        read_summary(run) if run.is_file() else write_run(run, options.base) for run in options.runs
    ]
    combined = combine(summaries)
    text = block(combined, summaries)
    if options.readme is not None:
        figure = draw_stages(combined["stages"], runs_note(summaries, options.base))
        write_into(options.readme, text, {"stages.png": figure})
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
