"""The notebook runs from top to bottom on a run folder that the command line made."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from test_notebooks import num_images, outputs_on, texts

from r1lit.cli import main

ROOT = Path(__file__).parents[2]


def world(kind: str, split: str, num_problems: int) -> dict:
    init_args = {"split": split, "num_problems": num_problems}
    return {"class_path": f"r1lit.worlds.{kind}", "init_args": init_args}


@pytest.fixture
def run_folder(tmp_path, monkeypatch) -> Path:
    """Two iterations of ``make aha`` on a model that knows nothing."""
    monkeypatch.chdir(ROOT)
    folder = tmp_path / "run"
    config = yaml.safe_load((ROOT / "configs/mini/r1_zero.yaml").read_text())
    config["model"]["init_args"] |= {
        "policy": {"path": "models/mini", "from_scratch": True},
        "sampling": {"max_tokens": 24},
        "train_batch_size": 8,
        "micro_batch_tokens": 1024,
    }
    config["data"]["init_args"] |= {
        "train": [world("WorldCountdown", "train", 4)],
        "validation": [
            world("WorldCountdown", "held_out", 2),
            world("WorldChain", "held_out", 2),
        ],
        "rollout": {"prompts_per_iteration": 2, "group_size": 4},
        "num_iterations": 2,
        "evaluation": {"num_samples": 2},
    }
    keep = ("EvaluateFirst", "ResponseLength", "MajorityVoteEvaluation", "ReflectionWords")
    config["trainer"] |= {
        "val_check_interval": 1,
        "logger": False,
        "enable_model_summary": False,
        "enable_checkpointing": False,
        "callbacks": [
            {"class_path": f"r1lit.callbacks.{name}"}
            for name in (*keep, "GroupHealth", "ResponseTable", "CurveWriter")
        ],
    }
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(config))
    main(["fit", "-c", str(path), "--run", str(folder)])
    return folder


@pytest.mark.slow
def test_notebook_runs_on_a_run_folder(run_folder):
    outputs = outputs_on("aha_moment.ipynb", run_folder)
    assert num_images(outputs) == 4
    said = texts(outputs)
    assert said[0].endswith("A run of your own.")
    assert any("2 iterations" in text and "pass@1" in text for text in said)
    assert sum("reflection words.\n" in text for text in said) == 3  # start, middle, end
