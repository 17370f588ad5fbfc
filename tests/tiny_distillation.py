"""Small distillation runs through the real command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors.torch import load_file
from tiny import grpo_config, merge


def documents(folder: Path) -> list[dict[str, Any]]:
    """Write a table of sums; return a source of its documents."""
    path = folder / "documents.jsonl"
    rows = [{"prompt": f"Q: {n}\nA:", "response": f" {n} + {n} = {2 * n}."} for n in range(1, 31)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return [{"class_path": "r1lit.data.TableDocuments", "init_args": {"path": str(path)}}]


def problems(folder: Path, key: str, text: str) -> dict[str, Any]:
    """Write a table of sums; return a source of its problems, with ``text`` of each under a key."""
    path = folder / "problems.jsonl"
    rows = [
        {"question": f"{n} + 1?", "answer": str(n + 1), key: text.format(n + 1)} for n in range(12)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    init_args = {"path": str(path), "meta": [key]}
    return {"class_path": "r1lit.data.TableProblems", "init_args": init_args}


def off_policy(folder: Path, policy: Path | dict[str, Any], **init_args: Any) -> Path:
    """Write the YAML of 30 short updates on documents; return its path."""
    here = folder.parent
    config = {
        "seed_everything": 0,
        "model": {
            "class_path": "r1lit.modules.DistillationModule",
            "init_args": {
                "micro_batch_tokens": 256,
                "optimizer": {"class_path": "torch.optim.AdamW", "init_args": {"lr": 0.01}},
                "policy": policy if isinstance(policy, dict) else str(policy),
                **init_args,
            },
        },
        "data": {
            "class_path": "r1lit.data.R1DataModule",
            "init_args": {
                "documents": documents(here),
                "packing": {"max_seq_len": 64, "train_batch_size": 4},
                "num_iterations": 30,
            },
        },
        "trainer": {
            "accelerator": "cpu",
            "default_root_dir": str(folder),
            "max_epochs": 1,
            "num_sanity_val_steps": 0,
            "enable_model_summary": False,
            "log_every_n_steps": 1,
            "logger": False,
            "callbacks": [
                {
                    "class_path": "r1lit.callbacks.CurveWriter",
                    "init_args": {"dirpath": str(folder), "draw_every_n_iterations": 0},
                },
                {
                    "class_path": "r1lit.callbacks.ExportHuggingFace",
                    "init_args": {"dirpath": str(folder / "policy")},
                },
                {
                    "class_path": "r1lit.callbacks.IterationCheckpoint",
                    "init_args": {"dirpath": str(folder / "checkpoints"), "every_n_iterations": 10},
                },
            ],
        },
    }
    path = here / f"{folder.name}.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def on_policy(folder: Path, policy: Path, change: dict[str, Any], **init_args: Any) -> Path:
    """Write the YAML of 6 short iterations on prompts; return its path."""
    path = grpo_config(folder, policy)
    config = yaml.safe_load(path.read_text())
    grpo = config["model"]["init_args"]
    config["model"] = {
        "class_path": "r1lit.modules.DistillationModule",
        "init_args": {
            **{key: grpo[key] for key in ("policy", "sampling", "micro_batch_tokens", "optimizer")},
            "rewards": grpo["rewards"],
            "on_policy": 1.0,
            "sft_weight": 0.0,
            "logit_weight": 1.0,
            **init_args,
        },
    }
    config["trainer"]["val_check_interval"] = 1.0  # once, at the end
    path.write_text(yaml.safe_dump(merge(config, change)))
    return path


def losses(folder: Path, key: str = "train/loss") -> list[float]:
    """Return what a run logged under a key, iteration by iteration."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)[key] for line in lines]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """Return the weights that a run exported."""
    return load_file(folder / "policy" / "model.safetensors")
