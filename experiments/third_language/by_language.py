"""Consistency and accuracy by the problem's language, before and after: a table for the README.

    python -m experiments.third_language.by_language [experiments/third_language/sweep.yaml]

Of the evaluated responses in the runs' ``responses.jsonl``; each number is the mean over seeds. The
results go into the README beside the sweep file, between two marks of their own, and are written
beside it, languages.jsonl.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

from experiments.by_source import evaluations
from experiments.measures import group_by, mean_cell
from experiments.page import as_markdown
from experiments.points import Sweep
from experiments.second_table import command
from r1lit.files import Record, read_records
from r1lit.metrics import mean

MARKS = ("<!-- languages -->", "<!-- /languages -->")
RAW = "languages.jsonl"
SCRIPTS = {"Chinese": re.compile(r"[\u4e00-\u9fff]"), "Russian": re.compile(r"[\u0400-\u04ff]")}
LANGUAGES = ("English", *SCRIPTS)


def language_of(question: str) -> str:
    """Return the small world's language of a question, by its script.

    >>> [language_of(q) for q in ("make 9", "得到 9", "Получите 9")]
    ['English', 'Chinese', 'Russian']
    """
    return next((name for name, script in SCRIPTS.items() if script.search(question)), "English")


def count(sweep: Sweep) -> list[Record]:
    """Return a record for each finished run, language and evaluation, the first and the last.

    Raises:
        ValueError: if no point is finished.
    """
    records: list[Record] = []
    for result, folder in sweep.finished():
        evaluated = list(evaluations(read_records(folder / "responses.jsonl")).values())
        for when, own in (("before", evaluated[0]), ("after", evaluated[-1])):
            for name in LANGUAGES:
                asked = [r for r in own if language_of(r["question"]) == name]
                consistency = [r["rewards"]["language_consistency"] for r in asked]
                records.append({
                    "variant": result["variant"], "seed": result["seed"], "language": name,
                    "when": when, "num_problems": len({r["uid"] for r in asked}),
                    "language_consistency": mean(consistency),
                    "pass_at_1": mean([float(r["value"]) for r in asked]),
                })  # fmt: skip
    return records


def as_table(records: Sequence[Record]) -> str:
    """Return the Markdown table: a row a language, mean ± standard error over seeds."""
    variants = list(group_by("variant", records))
    groups = group_by("language", records)
    names = ["language", "problems"]
    rows = [[name, str(groups[name][0]["num_problems"])] for name in LANGUAGES]
    columns = [("before", variants[0]), *(("after", variant) for variant in variants)]
    for key, heading in (("language_consistency", "consistency"), ("pass_at_1", "pass@1")):
        for when, variant in columns:
            names.append(f"{heading}, {when if when == 'before' else variant}")
            own = [r for r in records if (r["when"], r["variant"]) == (when, variant)]
            for row in rows:
                row.append(mean_cell([r[key] for r in own if r["language"] == row[0]], ".3f"))
    return as_markdown(names, rows)


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status, 2 for bad input."""
    return command(args, file=__file__, read=count, as_table=as_table, marks=MARKS, raw_name=RAW)


if __name__ == "__main__":
    sys.exit(main())
