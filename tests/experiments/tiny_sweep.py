"""A sweep small enough to run: a model that knows nothing, eight tokens a response."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from experiments.compose import merge
from experiments.page import END, START
from experiments.sweep import Sweep, read_sweep
from r1lit import cli

ROOT = Path(__file__).parents[2]

TINY = {
    "model": {
        "init_args": {
            "policy": {"from_scratch": True},
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


def in_process(arguments: list[str], log: Path) -> int:
    """Launch a run in this process."""
    cli.main(arguments)
    return 0


def tiny_of(name: str, tiny: dict[str, Any], output: Path, step: str | None = None) -> Sweep:
    """Return a shipped study's grid with something small merged over its base, for one seed."""
    shipped = read_sweep(study_file(name), step)
    return replace(shipped, base=merge(shipped.base, tiny), seeds=[0], output=output)


def study_file(name: str) -> Path:
    """Return a shipped study's file."""
    return ROOT / "experiments" / name / "study.yaml"


def shortened(folder: Path, name: str, changes: dict[str, Any]) -> list[str]:
    """Return the arguments that run a shipped study, some of its steps made short."""
    content = yaml.safe_load(study_file(name).read_text())
    for step in content["steps"]:
        for key, change in changes.items():
            if step["name"] == key or (key[-1] == "-" and step["name"].startswith(key)):
                step.update(merge(step, change))
    (folder / "study.yaml").write_text(yaml.safe_dump(content))
    (folder / "README.md").write_text(f"# Short\n\n{START}\n{END}\n")
    return [str(folder / "study.yaml"), "--seeds=0", f"--output={folder}/runs"]


def data(**init_args: object) -> dict[str, Any]:
    return {"set": {"data": {"init_args": init_args}}}
