"""A sweep small enough to run: a model that knows nothing, eight tokens a response."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from experiments.compose import merge
from experiments.page import END, START

ROOT = Path(__file__).parents[2]

TINY = {
    "model": {
        "init_args": {
            "from_scratch": True,
            "sampling": {"max_tokens": 8},
            "train_batch_size": 8,
            "micro_batch_tokens": 1024,
        }
    },
    "data": {
        "init_args": {
            "train": [
                {
                    "class_path": "r1lit.worlds.WorldCountdown",
                    "init_args": {"split": "train", "num_problems": 4},
                }
            ],
            "validation": [
                {
                    "class_path": "r1lit.worlds.WorldCountdown",
                    "init_args": {"split": "held_out", "num_problems": 2},
                }
            ],
            "rollout": {"prompts_per_iteration": 2, "group_size": 4},
            "num_iterations": 2,
            "evaluation": {"num_samples": 2},
        }
    },
    "trainer": {"val_check_interval": 1, "enable_model_summary": False},
}


def variant(class_path: str, **init_args: object) -> dict:
    objective = {"class_path": f"r1lit.objectives.{class_path}", "init_args": init_args}
    return {"model": {"init_args": {"objective": objective}}}


def shortened(folder: Path, experiment: Any, changes: dict[str, Any]) -> list[str]:
    """Return the arguments that run an experiment's shipped pipeline, some steps made short."""
    content = yaml.safe_load((Path(experiment.__file__).parent / "pipeline.yaml").read_text())
    for step in content["steps"]:
        for name, change in changes.items():
            if step["name"] == name or (name[-1] == "-" and step["name"].startswith(name)):
                step.update(merge(step, change))
    (folder / "pipeline.yaml").write_text(yaml.safe_dump(content))
    (folder / "README.md").write_text(f"# Short\n\n{START}\n{END}\n")
    return [
        str(folder / "pipeline.yaml"), "--seeds=0", f"--output={folder}/runs", f"--readme={folder}"
    ]  # fmt: skip


def data(**init_args: object) -> dict[str, Any]:
    return {"set": {"data": {"init_args": init_args}}}
