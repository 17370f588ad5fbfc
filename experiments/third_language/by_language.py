"""Second table of the page: consistency and accuracy by the problem's language."""

from __future__ import annotations

import re
from collections.abc import Sequence

from experiments.by_source import evaluated_in
from experiments.sweep import Sweep
from experiments.tables import as_markdown, group_by, mean_cell
from r1lit.files import Record
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
        evaluated = list(evaluated_in(folder).values())
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
