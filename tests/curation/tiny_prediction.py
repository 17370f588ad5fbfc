"""A small prediction whose responses are curated, through the real command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tiny_evaluation import evaluation_config

FILES = ("sft.jsonl", "dropped.jsonl", "card.json", "card.md", "lengths.png")


def prediction_config(
    folder: Path, policy: Path, rejection: dict[str, Any] | None = None, num_problems: int = 4
) -> Path:
    """Write the YAML of a prediction with k = 4 into ``folder``; return its path."""
    rows = [
        {
            "question": f"What is {i} + {i}?",
            "answer": str(2 * i),
            "kind": "general" if i == 3 else "reasoning",
            "language": "en",
        }
        for i in range(num_problems)
    ]
    table = folder / "problems.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = {
        "class_path": "r1lit.data.TableProblems",
        "init_args": {"path": str(table), "meta": ["kind", "language"]},
    }
    curate = {"class_path": "r1lit.callbacks.RejectionSampling", "init_args": rejection or {}}
    change = {
        "data": {"init_args": {"test": None, "predict": [source]}},
        "trainer": {"callbacks": [curate]},
    }
    return evaluation_config(folder, policy, change)


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]
