"""A small evaluation of four sums on a tiny policy, and what it writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from tiny import merge


def write_problems(path: Path, num_problems: int = 4) -> Path:
    rows = [
        {"question": f"What is {i} + {i}?", "answer": str(2 * i), "level": i % 2}
        for i in range(num_problems)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def evaluation_config(
    folder: Path, policy: Path, change: dict[str, Any] | None = None, num_problems: int = 4
) -> Path:
    """Write the YAML of an evaluation with k = 4 into ``folder``; return its path."""
    config: dict[str, Any] = {
        "seed_everything": 0,
        "model": {
            "class_path": "r1lit.modules.EvaluationModule",
            "init_args": {
                "policy": {"path": str(policy), "dtype": "float32"},
                "dirpath": str(folder / "run"),
                "suite": "sums",
                "sampling": {"temperature": 1.0, "max_tokens": 8},
                "engine": {
                    "class_path": "r1lit.rollout.InProcessEngine",
                    "init_args": {"max_rows": 8},
                },
                "grader": {"class_path": "stand_ins.DigitJudge"},
            },
        },
        "data": {
            "class_path": "r1lit.data.R1DataModule",
            "init_args": {
                "prompts": {"template": "plain"},
                "evaluation": {"num_samples": 4, "prompts_per_batch": 100_000},
                "test": [
                    {
                        "class_path": "r1lit.data.TableProblems",
                        "init_args": {
                            "path": str(write_problems(folder / "sums.jsonl", num_problems)),
                            "meta": ["level"],
                        },
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
        },
    }
    path = folder / "sums.yaml"
    path.write_text(yaml.safe_dump(merge(config, change or {})))
    return path


def lines(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "responses.jsonl").read_text().splitlines()]


def texts(run: Path) -> dict[tuple[str, int], str]:
    """The responses by problem and sample; a repeat is an error."""
    found = lines(run)
    by_name = {(line["uid"], line["sample"]): line["response"] for line in found}
    assert len(by_name) == len(found)
    return by_name


def report(run: Path) -> dict[str, Any]:
    return json.loads((run / "report.json").read_text())
