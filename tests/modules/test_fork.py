"""``r1lit fork``: a branch shares the run's history, and without a change it is the run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from test_resume import assert_equal, everything
from tiny import data, grpo_config, model

from r1lit.cli import fork, main
from r1lit.evaluation.compare import paired_samples


def test_a_branch_goes_on_from_the_run_bit_equal_or_changed(tmp_path: Path, policy: Path) -> None:
    whole, run = tmp_path / "whole", tmp_path / "run"
    main(["fit", "-c", str(grpo_config(whole, policy))])
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
