"""Stages in rows and suites in columns, from the reports of `r1lit test` with suites.

``python -m experiments.r1.suite_table runs/small_real`` writes ``table.md`` there and prints it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.launch import command_line, reported
from experiments.r1.stages import EVALUATED
from experiments.tables import as_markdown
from r1lit.evaluation.suites.table import shown
from r1lit.files import replace_file


def read_reports(run: Path) -> dict[str, dict[str, Any]]:
    """Return the rows of every stage's report, by stage and suite.

    Raises:
        ValueError: if no stage was evaluated.
    """
    paths = {name: run / "eval" / name / "report.json" for name in EVALUATED}
    found = {
        name: {row["suite"]: row for row in json.loads(path.read_text())["suites"]}
        for name, path in paths.items()
        if path.is_file()
    }
    if not found:
        raise ValueError(f"{run}: no stage is evaluated; there is no {paths[EVALUATED[0]]}")
    return found


def as_table(reports: dict[str, dict[str, Any]]) -> str:
    """Return the table as Markdown: value and 95 % interval; a suite that was left out has –."""
    suites = list(dict.fromkeys(suite for rows in reports.values() for suite in rows))
    titles = {s: rows[s]["title"] for rows in reports.values() for s in suites if s in rows}
    rows = [
        [stage, *(_cell(of_stage.get(suite, {})) for suite in suites)]
        for stage, of_stage in reports.items()
    ]
    lines = [as_markdown(["", *(titles[suite] for suite in suites)], rows)]
    reasons = {
        f"- {row['title']} of {stage} was left out: {row['left_out']}"
        for stage, rows in reports.items()
        for row in rows.values()
        if "left_out" in row
    }
    return "\n".join([*lines, *([""] if reasons else []), *sorted(reasons)]) + "\n"


def _cell(row: dict[str, Any]) -> str:
    if "score" not in row:
        return "–"
    score = row["score"]
    value = shown(score, score["value"])
    if score["low"] is None:
        return value
    return f"{value} ({shown(score, score['low'])} to {shown(score, score['high'])})"


@reported("suite_table")
def main(args: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = command_line("experiments.r1.suite_table", __doc__)
    parser.add_argument("run", type=Path, help="the run folder of a pipeline")
    options = parser.parse_args(args)
    text = as_table(read_reports(options.run))
    replace_file(options.run / "table.md", text.encode())
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
