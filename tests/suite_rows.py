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
    "mmlu_redux": [
        {**CHOICES, "question": "What is 0 + 1?", "error_type": kind, "correct_answer": answer}
        for kind, answer in (("ok", None), ("wrong_groundtruth", "C"))
    ],
    "mmlu_pro": [
        {
            "question_id": 1,
            "question": "What is 1 + 1?",
            "options": ["1", "N/A", "2", *map(str, range(3, 10))],
            "answer": "C",
            "answer_index": 2,
            "cot_content": "",
            "category": "math",
            "src": "",
        }
    ],
    "ifeval": [
        {
            "key": 1000,
            "prompt": "Write without commas.",
            "instruction_id_list": ["punctuation:no_comma"],
            "kwargs": [{"num_words": None}],
        }
    ],
    "aime2024": [{"id": i, "problem": f"What is {i} + 1?", "answer": str(i + 1)} for i in (59, 60)],
    "aime2025": [{"id": 0, "problem": "What is 69 + 1?", "answer": "70"}],
    "cnmo2024": [{"question": "What is 1 + 1?", "answer": "2"}],
    "amc": [{"question": "What is 26 + 1?", "answer": 27.0}],
    "gsm8k": [{"question": "What is 1000 + 1?", "answer": "It is <<1000+1=1001>>.\n#### 1,001"}],
    "cluewsc": [
        {
            "target": {
                "span1_text": "小明",
                "span2_text": "他",
                "span1_index": 0,
                "span2_index": 6,
            },
            "text": "小明放学了，他回家。",
            "label": label,
        }
        for label in ("true", "false")
    ],
    "ceval": [
        {"id": i, "subject": subject, "question": "1 + 1 =", "explanation": "", "answer": "B"}
        | dict(zip("ABCD", "1234", strict=True))
        for i, subject in enumerate(("高等数学", "高等数学", "大学物理"))
    ],
    "cmmlu": [
        {"Question": "1 + 1 =", "subject": "初等数学", "Answer": "B"}
        | dict(zip("ABCD", "1234", strict=True))
    ],
    "mgsm": [{"question": "What is 1 + 1?", "answer": "2"}],
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
        if path.name.endswith(".tsv"):
            path.write_text("".join("\t".join(row.values()) + "\n" for row in rows))
            continue
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
