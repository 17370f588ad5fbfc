"""A small prediction whose responses are curated, through the real command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

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
    table = folder / "sums.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = {
        "seed_everything": 0,
        "model": {
            "class_path": "r1lit.modules.EvaluationModule",
            "init_args": {
                "policy": str(policy),
                "dirpath": str(folder / "run"),
                "sampling": {"temperature": 1.0, "max_tokens": 8},
                "engine": {
                    "class_path": "r1lit.rollout.PolicyEngine",
                    "init_args": {"max_rows": 8},
                },
                "judge": {"class_path": "judges.DigitJudge"},
                "dtype": "float32",
            },
        },
        "data": {
            "class_path": "r1lit.data.R1DataModule",
            "init_args": {
                "template": "plain",
                "validation_group_size": 4,
                "validation_prompts_per_batch": 100_000,
                "predict": [
                    {
                        "class_path": "r1lit.data.TableProblems",
                        "init_args": {"path": str(table), "meta": ["kind", "language"]},
                    }
                ],
            },
        },
        "trainer": {
            "accelerator": "cpu",
            "devices": 1,
            "logger": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "enable_checkpointing": False,
            "callbacks": [
                {
                    "class_path": "r1lit.callbacks.RejectionSampling",
                    "init_args": rejection or {},
                }
            ],
        },
    }
    path = folder / "sums.yaml"
    path.write_text(yaml.safe_dump(config, allow_unicode=True))
    return path


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]
