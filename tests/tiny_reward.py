"""A reward model's run of the real command line on a model of a few thousand parameters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import yaml
from tiny import merge, save_policy

from r1lit.policy import load_reward_model, load_tokenizer

PAIRS = {"class_path": "r1lit.data.TablePairs"}
LABELS = {"class_path": "r1lit.data.TableLabels"}


def save_critic(directory: Path) -> Path:
    """Save a random body with a random head as ``critic``, beside its ``policy``."""
    policy = save_policy(directory / "policy", seed=7)
    tokenizer = load_tokenizer(str(policy))
    model = load_reward_model(str(policy), pad_id=tokenizer.pad_token_id)
    torch.manual_seed(2)
    torch.nn.init.normal_(model.model.score.weight)
    model.save_pretrained(directory / "critic")
    tokenizer.save_pretrained(directory / "critic")
    return directory / "critic"


def write_pairs(path: Path, num: int = 40) -> Path:
    """Pairs of which the one that says please is preferred; length tells nothing."""
    rows = []
    for n in range(num):
        kind, rude = f"please take {n}", f"just take {n}"
        long = " and then some more"
        rows.append(
            {
                "prompt": f"Give me {n}.",
                "chosen": kind + long * (n % 2),
                "rejected": rude + long * ((n + 1) % 2),
            }
        )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_labels(path: Path, num: int = 40) -> Path:
    """Responses that are unsafe when they hold an x."""
    rows = [
        {
            "prompt": f"Give me {n}.",
            "response": f"{n} xxx" if n % 2 else f"{n} ooo",
            "label": "unsafe" if n % 2 else "safe",
        }
        for n in range(num)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def reward_config(
    run: Path, policy: Path, table: Path, change: dict[str, Any] | None = None, pairs: bool = True
) -> Path:
    """Write the YAML of a run of a reward model, 8 short iterations; return its path."""
    objective = "BradleyTerry" if pairs else "SafeUnsafe"
    source = PAIRS if pairs else LABELS
    config: dict[str, Any] = {
        "seed_everything": 0,
        "model": {
            "class_path": "r1lit.modules.RewardModule",
            "init_args": {
                "policy": str(policy),
                "objective": {"class_path": f"r1lit.objectives.{objective}"},
                "micro_batch_tokens": 256,
                "optimizer": {"class_path": "torch.optim.AdamW", "init_args": {"lr": 0.01}},
                "lr_scheduler": {
                    "class_path": "torch.optim.lr_scheduler.LinearLR",
                    "init_args": {"total_iters": 8},
                },
            },
        },
        "data": {
            "class_path": "r1lit.data.PreferenceDataModule",
            "init_args": {
                "train": [{**source, "init_args": {"path": str(table)}}],
                "validation_share": 0.25,
                "template": "question_answer",
                "max_tokens": 128,
                "train_batch_size": 8,
                "num_iterations": 8,
            },
        },
        "trainer": {
            "accelerator": "cpu",
            "default_root_dir": str(run),
            "max_epochs": 1,
            "num_sanity_val_steps": 0,
            "val_check_interval": 4,
            "enable_model_summary": False,
            "log_every_n_steps": 1,
            "logger": False,
            "callbacks": [
                {
                    "class_path": "r1lit.callbacks.CurveWriter",
                    "init_args": {"dirpath": str(run), "draw_every_n_iterations": 0},
                },
                {
                    "class_path": "r1lit.callbacks.IterationCheckpoint",
                    "init_args": {"dirpath": str(run / "checkpoints"), "every_n_iterations": 1},
                },
                {
                    "class_path": "r1lit.callbacks.ExportHuggingFace",
                    "init_args": {"dirpath": str(run / "policy")},
                },
                {"class_path": "r1lit.callbacks.R1ProgressBar"},
            ],
        },
    }
    path = run.parent / f"{run.name}.yaml"
    path.write_text(yaml.safe_dump(merge(config, change or {})))
    return path
