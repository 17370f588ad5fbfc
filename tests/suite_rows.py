"""A row or two of each suite's data in its exact schema, for tests without the data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from r1lit.evaluation.suites import load_suite

CHOICES = {"choices": ["0", "1", "2", "3"], "answer": 1, "subject": "abstract_algebra"}
DROP = "Passage: {}\nQuestion: How many touchdowns were there?\nAnswer:"

ROWS: dict[str, list[dict[str, Any]]] = {
    "mmlu": [{"question": "What is 0 + 1?", **CHOICES}, {"question": "What is 3 - 2?", **CHOICES}],
    "gpqa_diamond": [
        {
            "Question": "Which?",
            "Correct Answer": "this",
            **{f"Incorrect Answer {i}": f"that {i}" for i in (1, 2, 3)},
            "High-level domain": "Physics",
        }
    ],
    "drop": [
        {"context": DROP.format(f"Team {i} won."), "completion": f" {i}", "ref_text": f"{i}|{i} of"}
        for i in range(6)
    ],
    "math500": [
        {
            "problem": f"What is {n} + 1?",
            "solution": f"So $\\boxed{{{n + 1}}}$.",
            "answer": str(n + 1),
            "subject": "Algebra",
            "level": n,
            "unique_id": f"test/algebra/{n}.json",
        }
        for n in (1, 2)
    ],
}


def write_rows(folder: Path, *names: str) -> Path:
    """Write the rows of suites to the files that they name; return the folder."""
    folder.mkdir(exist_ok=True)
    for name in names:
        path, rows = folder / load_suite(name).file, ROWS[name]
        if path.name.endswith(".csv"):
            import csv

            with path.open("w", newline="") as file:
                writer = csv.DictWriter(file, list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)
            continue
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        if path.suffix == ".gz":
            import gzip

            path.write_bytes(gzip.compress(text.encode()))
        else:
            path.write_text(text)
    return folder
