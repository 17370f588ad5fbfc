"""Whole runs on the device at hand: the CPU's losses, kill and resume, strategies of one rank."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from test_ddp import SGD, fit_in_a_process
from test_fsdp2 import exported, sharded
from test_ppo import ppo
from test_resume import assert_equal, everything, run_and_kill
from test_sft_module import documents, sft  # noqa: F401
from tiny import data, grpo_config, merge, metrics, model

from r1lit.cli import main

pytestmark = pytest.mark.gpu

HERE = {"trainer": {"accelerator": "auto", "devices": 1, "limit_val_batches": 0}}
CPU = {"trainer": {"accelerator": "cpu", "devices": 1, "limit_val_batches": 0}}
TWO = merge(data(num_iterations=2), model(sampling={"max_tokens": 24}))
WITH_KL = {"class_path": "r1lit.objectives.GRPO", "init_args": {"beta": 0.05}}
LOSSES = ("train/loss", "train/entropy", "train/grad_norm", "train/reward", "train/num_tokens")


@pytest.mark.parametrize("method", ["grpo", "ppo"])
def test_first_iterations_are_those_of_the_cpu(tmp_path: Path, policy: Path, method: str) -> None:
    """In float32 both sample the same tokens, so losses differ by rounding alone.

    Not with Adam: its first step is as large where the gradient is nothing but rounding.
    """
    own = ppo(optimizer=SGD) if method == "ppo" else model(objective=WITH_KL, optimizer=SGD)
    rows = []
    for name, where in (("cpu", CPU), ("here", HERE)):
        change = merge(merge(own, TWO), where)
        main(["fit", "-c", str(grpo_config(tmp_path / name, policy, change))])
        rows.append(metrics(tmp_path / name))
    assert len(rows[0]) == len(rows[1]) == 2
    for expected, found in zip(*rows, strict=True):
        for key in LOSSES:
            assert found[key] == pytest.approx(expected[key], rel=2e-3, abs=1e-5), key


def test_supervised_losses_are_those_of_the_cpu(
    tmp_path: Path,
    policy: Path,
    documents: Path,  # noqa: F811
) -> None:
    losses = []
    for name, where in (("cpu", CPU), ("here", HERE)):
        config = sft(tmp_path / name, policy, documents)
        options = ["--data.num_iterations", "5", "--run", str(tmp_path / name)]
        accelerator = ["--trainer.accelerator", where["trainer"]["accelerator"]]
        main(["fit", "-c", str(config), *options, *accelerator, "--trainer.devices", "1"])
        losses.append([row["train/loss"] for row in metrics(tmp_path / name)])
    assert len(losses[0]) == 5 and losses[0][-1] < losses[0][0]
    assert losses[1] == pytest.approx(losses[0], rel=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_killed_and_resumed(tmp_path: Path, policy: Path, precision: str) -> None:
    change: dict[str, Any] = merge(
        merge(model(objective=WITH_KL), {"trainer": {**HERE["trainer"], "limit_val_batches": 1}}),
        {"trainer": {"precision": precision}, "deterministic": True},
    )
    whole, broken = (grpo_config(tmp_path / name, policy, change) for name in ("whole", "broken"))
    main(["fit", "-c", str(whole)])
    run_and_kill(broken, 3, tmp_path)
    main(["fit", "-c", str(broken), "--ckpt_path", "last"])
    assert_equal(everything(tmp_path / "whole"), everything(tmp_path / "broken"))


@pytest.mark.slow
def test_strategies_of_one_rank(tmp_path: Path, policy: Path) -> None:
    """DDP and FSDP2 (NCCL on a GPU) train as no strategy does."""
    strategies = {"none": {}, "ddp": {"trainer": {"strategy": "ddp"}}, "fsdp2": sharded(1)}
    weights = {}
    for name, strategy in strategies.items():
        change = merge(merge(TWO, HERE), strategy)
        config = grpo_config(tmp_path / name, policy, change)
        done = fit_in_a_process(config, tmp_path)
        assert done.returncode == 0, (name, done.stderr[-3000:])
        weights[name] = exported(tmp_path / name)
    for name in ("ddp", "fsdp2"):
        assert weights[name].keys() == weights["none"].keys()
        for weight, expected in weights["none"].items():
            torch.testing.assert_close(weights[name][weight], expected, rtol=1e-3, atol=1e-3)
