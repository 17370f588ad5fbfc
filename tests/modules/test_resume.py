"""Kill -9 and resume: bit-equal to the run that was left alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback
from metrics_page import MEASURED
from test_batches import batch
from tiny import ROOT, data, grpo_config, model

from r1lit.cli import main
from r1lit.modules import GRPOModule, SFTModule
from r1lit.objectives import GRPO
from r1lit.rewards import Accuracy
from r1lit.rollout import Sampling


class KillAt(Callback):
    """Kills its own process with SIGKILL once ``iteration`` has been trained but not saved."""

    def __init__(self, iteration: int) -> None:
        self.iteration = iteration

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *args: Any) -> None:
        if int(pl_module.iteration) == self.iteration + 1:
            os.kill(os.getpid(), signal.SIGKILL)


def run_and_kill(
    config: Path, iteration: int, folder: Path, callbacks: Sequence[dict[str, Any]] = ()
) -> None:
    """Fit in a process of its own, in ``folder``, that dies before ``iteration`` is saved."""
    kill = {"class_path": "test_resume.KillAt", "init_args": {"iteration": iteration}}
    added = json.dumps([*callbacks, kill])
    command = ["fit", "-c", str(config), "--trainer.callbacks+", added]
    ended = subprocess.run(
        [sys.executable, "-c", f"from r1lit.cli import main; main({command!r})"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        capture_output=True,
        text=True,
        cwd=folder,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr[-2000:]


def everything(run: Path) -> dict[str, Any]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        for key in [k for k in line if k == "seconds" or k.startswith(MEASURED)]:
            del line[key]
    evaluations = json.loads((run / "summary.json").read_text())
    for evaluation in evaluations:
        del evaluation["seconds"]
    state = torch.load(run / "checkpoints" / "last.ckpt", weights_only=False)
    return {
        "metrics": lines,
        "evaluations": evaluations,
        "responses": (run / "responses.jsonl").read_text().splitlines(),
        "weights": state["state_dict"],
        "optimizers": [own["state"] for own in state["optimizer_states"]],
        "scheduler": state["lr_schedulers"],
        "global_step": state["global_step"],
    }


def assert_equal(a: Any, b: Any, where: str = "") -> None:
    if isinstance(a, torch.Tensor):
        assert torch.equal(a, b), where
    elif isinstance(a, dict):
        assert a.keys() == b.keys(), where
        for key in a:
            assert_equal(a[key], b[key], f"{where}/{key}")
    elif isinstance(a, list):
        assert len(a) == len(b), where
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            assert_equal(x, y, f"{where}/{i}")
    else:
        assert a == b, (where, a, b)


@pytest.mark.parametrize(
    "kill_at", [pytest.param(3, marks=pytest.mark.long), pytest.param(4, marks=pytest.mark.slow)]
)
def test_killed_and_resumed_is_bit_equal(tmp_path: Path, policy: Path, kill_at: int) -> None:
    """Dynamic sampling, reference refresh and validation fall in between."""
    change = model(
        collector={"class_path": "r1lit.collect.DynamicSampling"},
        objective={"class_path": "r1lit.objectives.GRPO", "init_args": {"beta": 0.05}},
        lr_scheduler={
            "class_path": "torch.optim.lr_scheduler.LinearLR",
            "init_args": {"total_iters": 12},
        },
    ) | data(rollout={"num_reserve_prompts": 4})
    refresh = {
        "class_path": "r1lit.callbacks.ReferenceRefresh",
        "init_args": {"every_n_iterations": 2},
    }
    whole = grpo_config(tmp_path / "whole", policy, change)
    broken = grpo_config(tmp_path / "broken", policy, change)
    extra = ["--trainer.callbacks+", json.dumps([refresh])]
    main(["fit", "-c", str(whole), *extra])
    run_and_kill(broken, kill_at, tmp_path, callbacks=[refresh])
    main(["fit", "-c", str(broken), *extra, "--ckpt_path", "last"])
    assert_equal(everything(tmp_path / "whole"), everything(tmp_path / "broken"))
    assert everything(tmp_path / "whole")["global_step"] == 12


@pytest.mark.parametrize("kind", [GRPOModule, SFTModule])
def test_data_at_another_iteration_than_the_module_is_refused(policy: Path, kind: type) -> None:
    options = {} if kind is SFTModule else {
        "objective": GRPO(), "rewards": [Accuracy()], "sampling": Sampling(max_tokens=4),
    }  # fmt: skip
    with pytest.raises(ValueError, match="data is at iteration 3, the module at 0"):
        kind(str(policy), **options).training_step(batch(iteration=3), 0)


def test_a_checkpoint_of_another_run_is_refused(fit, tmp_path: Path) -> None:
    fit("run", data(num_iterations=2))
    checkpoint = tmp_path / "run" / "checkpoints" / "last.ckpt"
    with pytest.raises(ValueError, match="ckpt_path"):
        fit("other", {"seed_everything": 7}, data(num_iterations=4),
            args=("--ckpt_path", str(checkpoint)))  # fmt: skip
