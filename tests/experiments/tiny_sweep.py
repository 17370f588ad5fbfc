"""A sweep small enough to run: a model that knows nothing, eight tokens a response."""

from __future__ import annotations

from pathlib import Path

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
