"""Two processes are one run: the same data, the same gradients, the same weights to rounding."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tiny import ROOT, data, grpo_config, merge, model

from r1lit.modules.base import PolicyModule

SGD = {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.5}}


def fit_in_a_process(config: Path, folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "r1lit.cli", "fit", "-c", str(config), *args],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        capture_output=True,
        text=True,
        cwd=folder,
    )


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["GRPO", "DAPO", "KLCov"])
def test_two_ranks_make_the_update_of_one(tmp_path: Path, policy: Path, objective: str) -> None:
    """Whole-batch updates, since ranks share rows out differently into smaller minibatches."""
    # the penalty is 0 on policy; which tokens are selected must not depend on the ranks either
    of_all = {"selected_share": 0.3} if objective == "KLCov" else {}
    change = merge(
        model(
            objective={"class_path": f"r1lit.objectives.{objective}", "init_args": of_all},
            num_inner_epochs=2 if of_all else 1,
            train_batch_size=16,
            micro_batch_tokens=256,
            optimizer=SGD,
        ),
        data(num_iterations=2, validation=None),
    )
    for name, devices in (("one", 1), ("two", 2)):
        ranks = {"trainer": {"devices": devices, "strategy": "ddp" if devices > 1 else "auto"}}
        config = grpo_config(tmp_path / name, policy, merge(change, ranks))
        done = fit_in_a_process(config, tmp_path)
        assert done.returncode == 0, done.stderr[-3000:]
        assert done.stdout.count("Memory of each of 2 ranks") == devices - 1  # by one of them
    one, two = (load_file(tmp_path / n / "policy" / "model.safetensors") for n in ("one", "two"))
    before = load_file(policy / "model.safetensors")
    assert any(not torch.equal(one[name], before[name]) for name in one)
    for name, value in one.items():
        torch.testing.assert_close(value, two[name], rtol=1e-4, atol=1e-5)


def test_a_mean_over_ranks_is_reduced_on_the_device() -> None:
    """NCCL refuses tensors of the CPU; what is averaged may be one, as an entropy is."""
    reduced: list[torch.Tensor] = []

    def reduce(tensor: torch.Tensor, reduce_op: str) -> float:
        reduced.append(tensor)
        return 0.5

    trainer = SimpleNamespace(world_size=2, strategy=SimpleNamespace(reduce=reduce))
    module: Any = SimpleNamespace(trainer=trainer, device=torch.device("meta"))
    assert PolicyModule.mean_over_ranks(module, torch.tensor(0.5)) == 0.5
    assert reduced[0].device.type == "meta"
