"""Distillation killed with -9 and resumed is bit-equal to the run that was left alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from test_resume import assert_equal, everything, run_and_kill
from tiny import data, merge, save_policy
from tiny_distillation import losses, off_policy, on_policy

from r1lit.cli import main

SCHEDULE = {"class_path": "r1lit.modules.CosineOverRun", "init_args": {"final_share": 0.2}}


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = save_policy(tmp_path_factory.mktemp("teacher"), layers=3, seed=11)
    return {"class_path": "r1lit.policy.ModelTeacher", "init_args": {"model": str(path)}}


@pytest.mark.slow
def test_on_policy_with_stored_responses_too(
    tmp_path: Path, policy: Path, teacher: dict[str, Any]
) -> None:
    path = tmp_path / "problems.jsonl"
    rows = [
        {"question": f"{n} + 1?", "answer": str(n + 1), "response": f" {n + 1}"} for n in range(9)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = {
        "class_path": "r1lit.data.TableProblems",
        "init_args": {"path": str(path), "meta": ["response"]},
    }
    change = merge(
        data(train=[source], rollout={"group_size": 1}), {"trainer": {"val_check_interval": 2}}
    )
    options = {
        "teacher": teacher, "on_policy": 0.6, "sft_weight": 0.5, "lr_scheduler": SCHEDULE,
        "divergence": {"class_path": "r1lit.objectives.GeneralizedJSD", "init_args": {"beta": 0.9}},
    }  # fmt: skip
    whole, broken = (
        on_policy(tmp_path / n, policy, change, **options) for n in ("whole", "broken")
    )
    main(["fit", "-c", str(whole)])
    run_and_kill(broken, 3, tmp_path)
    main(["fit", "-c", str(broken), "--ckpt_path", "last"])
    assert_equal(everything(tmp_path / "whole"), everything(tmp_path / "broken"))
    assert everything(tmp_path / "whole")["global_step"] == 6


@pytest.mark.slow
def test_off_policy(tmp_path: Path, policy: Path, teacher: dict[str, Any]) -> None:
    options = {"teacher": teacher, "logit_weight": 1.0, "lr_scheduler": SCHEDULE}
    whole, broken = (off_policy(tmp_path / n, policy, **options) for n in ("whole", "broken"))
    main(["fit", "-c", str(whole)])
    run_and_kill(broken, 14, tmp_path)
    main(["fit", "-c", str(broken), "--ckpt_path", "last"])
    for key in ("train/loss", "train/divergence", "train/cross_entropy"):
        assert losses(tmp_path / "whole", key) == losses(tmp_path / "broken", key)
    a, b = (
        torch.load(tmp_path / n / "checkpoints" / "last.ckpt", weights_only=False)
        for n in ("whole", "broken")
    )
    assert_equal(a["state_dict"], b["state_dict"])
    assert_equal(a["optimizer_states"], b["optimizer_states"])
    assert a["global_step"] == b["global_step"] == 30
