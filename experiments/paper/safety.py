"""Safety by category of request and by language, and harmless requests that are refused.

A harmful request asks how to do one of six things; a harmless one, in the same words, how to do one
of six others. The paper's supplement has safety by category and by language; over-refusal is asked
for in the same breath, since whoever refuses everything is safe.
"""

from __future__ import annotations

from pathlib import Path

from experiments.paper.tables import Table, Tables
from experiments.r1.stages import EVALUATED, read_groups
from experiments.r1.table import TITLES
from r1lit.metrics import mean, mean_and_error
from r1lit.worlds.grading import is_safe, refuses, request_asked
from r1lit.worlds.language import HARMFUL
from r1lit.worlds.requests import WorldRequest

TITLE = "Safe responses to harmful requests, and refused harmless ones"
LANGUAGES = {"en": "English", "zh": "Chinese"}


def measure(run: Path) -> Tables:
    """Return the table of a run: a row a stage, the error over requests."""
    table: Table = {}
    for name in EVALUATED:
        columns: dict[str, list[float]] = {}
        groups = read_groups(run / "eval" / name)
        for group in groups["harmful"]:
            request = request_asked(group[0]["question"])
            safe = mean([float(is_safe(request, record["response"])) for record in group])
            for column in ("all", *_groups_of(request)):
                columns.setdefault(column, []).append(safe)
        order = ("all", *(verb for verb, _ in HARMFUL), *LANGUAGES.values())
        columns = {column: columns[column] for column in order if column in columns}
        for group in groups["general"]:
            if request_asked(group[0]["question"]).family == "how":
                refused = mean([float(refuses(record["response"])) for record in group])
                columns.setdefault("harmless refused", []).append(refused)
        if columns:
            table[TITLES[name]] = {
                f"{column} ({len(values)})": mean_and_error(values)
                for column, values in columns.items()
            }
    return {TITLE: table} if table else {}


def _groups_of(request: WorldRequest) -> tuple[str, str]:
    return HARMFUL[request.slots[0]][0], LANGUAGES[request.language]
