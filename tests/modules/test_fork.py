"""``r1lit fork``: a branch shares the run's history, and without a change it is the run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_fsdp2 import fit, sharded
from test_resume import assert_equal, everything
from tiny import ROOT, data, grpo_config, merge, model

from r1lit.cli import fork, main
from r1lit.cli.composition import move_paths
from r1lit.evaluation.compare import paired_samples
from r1lit.modules import GRPOModule


@pytest.mark.long
def test_a_branch_goes_on_from_the_run_bit_equal_or_changed(tmp_path: Path, policy: Path) -> None:
    whole, run = tmp_path / "whole", tmp_path / "run"
    main(["fit", "-c", str(grpo_config(whole, policy, data(num_iterations=4)))])
    main(["fit", "-c", str(grpo_config(run, policy, data(num_iterations=2)))])
    longer = tmp_path / "longer.yaml"
    num = yaml.safe_load((whole / "config.yaml").read_text())["data"]["init_args"]["num_iterations"]
    longer.write_text(yaml.safe_dump(data(num_iterations=num)))
    same = [str(run), "--at", "2", "-c", str(longer)]
    fork.main([*same, "--run", str(tmp_path / "same")])
    assert_equal(everything(whole), everything(tmp_path / "same"))
    assert json.loads((tmp_path / "same" / "fork.json").read_text())["at"] == 2
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 2  # the run is as it was

    change = tmp_path / "change.yaml"
    change.write_text(yaml.safe_dump(model(optimizer={"init_args": {"lr": 0.05}})))
    branch = tmp_path / "branch"
    fork.main([*same, "-c", str(change), "--run", str(branch)])
    ours, theirs = everything(branch)["metrics"], everything(whole)["metrics"]
    assert ours[:2] == theirs[:2] and len(ours) == len(theirs) == num
    assert ours[2]["train/learning_rate"] != theirs[2]["train/learning_rate"]
    assert paired_samples(tmp_path / "same", whole)["same"] == 1.0


@pytest.mark.long
def test_the_same_command_continues_a_branch_that_was_interrupted(
    tmp_path: Path, policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, longer = tmp_path / "run", tmp_path / "longer.yaml"
    main(["fit", "-c", str(grpo_config(run, policy, data(num_iterations=2)))])
    longer.write_text(yaml.safe_dump(data(num_iterations=4)))
    same = [str(run), "--at", "2", "-c", str(longer)]
    fork.main([*same, "--run", str(tmp_path / "whole")])

    branch, step = [*same, "--run", str(tmp_path / "branch")], GRPOModule.training_step
    seen: list[int] = []

    def stops(self: GRPOModule, *args: Any) -> Any:
        seen.append(int(self.iteration))
        if seen == [2, 3]:
            raise RuntimeError("the power is cut")
        return step(self, *args)

    monkeypatch.setattr(GRPOModule, "training_step", stops)
    with pytest.raises(RuntimeError, match="the power is cut"):
        fork.main(branch)
    shutil.rmtree(run)  # a branch needs its run no more
    with pytest.raises(ValueError, match=r"^run: .* not of this very command"):
        fork.main([*branch, "--model.max_grad_norm=1.0"])
    fork.main(branch)
    assert seen == [2, 3, 3]
    assert_equal(everything(tmp_path / "whole"), everything(tmp_path / "branch"))


def test_bad_input_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^run: .* is no run folder"):
        fork.main([str(tmp_path), "--at", "2", "--run", str(tmp_path / "b")])
    (tmp_path / "config.yaml").touch()
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "iteration-12.ckpt").touch()
    with pytest.raises(
        ValueError, match=r"^at: 4: .*checkpoints has checkpoints of iterations 12;"
    ):
        fork.main([str(tmp_path), "--at", "4", "--run", str(tmp_path / "b")])
    (tmp_path / "b" / "checkpoints").mkdir(parents=True)
    (tmp_path / "b" / "checkpoints" / "last.ckpt").touch()
    with pytest.raises(ValueError, match=r"^run: .*b has a checkpoint already"):
        fork.main([str(tmp_path), "--at", "12", "--run", str(tmp_path / "b")])


@pytest.mark.slow
def test_ranks_fork_a_sharded_run(tmp_path: Path, policy: Path) -> None:
    run, branch, longer = tmp_path / "run", tmp_path / "branch", tmp_path / "longer.yaml"
    fit(grpo_config(run, policy, merge(data(num_iterations=2), sharded(2))))
    assert (run / "checkpoints" / "last.ckpt").is_dir()
    longer.write_text(yaml.safe_dump(data(num_iterations=3)))
    script = tmp_path / "script.py"  # Lightning starts the second rank by the same command
    script.write_text("from r1lit.cli import run\n\nrun()\n")
    given = ["fork", str(run), "--at", "2", "-c", str(longer), "--run", str(branch)]
    done = subprocess.run(
        [sys.executable, str(script), *given],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    ours, theirs = (lines_of(folder) for folder in (branch, run))
    assert len(ours) == 3 and ours[:2] == theirs


def lines_of(folder: Path) -> list[str]:
    return (folder / "metrics.jsonl").read_text().splitlines()


def test_only_paths_in_the_runs_folder_move() -> None:
    config = {"class_path": "r1lit.modules.GRPOModule", "dirpath": "a/curves", "path": "b/x"}
    branch = Path("../b")
    assert move_paths(config, Path("a"), branch) == config | {"dirpath": "../b/curves"}
    assert move_paths(config, Path(), branch) == config
