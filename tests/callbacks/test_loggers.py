"""docs/LOGGING.md as it stands: its loggers log, with hyper-parameters, and its search searches."""

from __future__ import annotations

import csv
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tiny import ROOT, data, grpo_config, merge

from r1lit.cli import main

PAGE = (ROOT / "docs" / "LOGGING.md").read_text()
WANDB, MLFLOW, CSV = re.findall(r"```yaml\n(.*?)```", PAGE, re.S)
(SEARCH,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
RATE = "model/init_args/optimizer/init_args/lr"


@pytest.fixture
def fit(tmp_path: Path, policy: Path, monkeypatch: pytest.MonkeyPatch):
    """Train two iterations with the loggers of a block of the page."""
    monkeypatch.chdir(tmp_path)

    def run(block: str, *args: str) -> Any:
        path = grpo_config(tmp_path / "run", policy, data(num_iterations=2))
        config = yaml.safe_load(path.read_text())
        config["trainer"]["logger"] = yaml.safe_load(block)["trainer"]["logger"]
        path.write_text(yaml.safe_dump(config))
        return main(["fit", "-c", str(path), *args])

    return run


def columns(run: Path) -> set[str]:
    with (run / "metrics.csv").open() as file:
        return set(csv.DictReader(file).fieldnames or ()) - {"step"}


@pytest.mark.long
def test_csv_has_the_numbers_to_watch_and_the_configuration(fit, tmp_path: Path) -> None:
    fit(CSV)
    some = columns(tmp_path / "run")
    assert {"train/loss", "train/length/mean", "val/pass_at_1", "val/cons_at_4"} <= some
    assert 15 <= len(some) <= 28, sorted(some)
    kept = yaml.safe_load((tmp_path / "run" / "hparams.yaml").read_text())
    assert kept["model"]["init_args"]["optimizer"]["init_args"]["lr"] == 0.01
    assert kept["data"]["init_args"]["rollout"]["group_size"] == 4
    assert list((tmp_path / "run").glob("events.out.tfevents.*"))


@pytest.mark.long
def test_steps_are_finished_iterations(fit, tmp_path: Path) -> None:
    fit(CSV)
    with (tmp_path / "run" / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    steps = {
        key: [int(r["step"]) for r in rows if r[key]] for key in ("train/loss", "val/pass_at_1")
    }
    assert steps["train/loss"] == [1, 2]
    assert steps["val/pass_at_1"][-1] == 2


@pytest.mark.long
def test_all_of_them_are_a_switch(fit, tmp_path: Path) -> None:
    fit(CSV, "--log_all", "true")
    every = columns(tmp_path / "run")
    assert len(every) > 60
    assert {"train/reflection/word/wait", "val/cons_at_2", "train/length/p90"} <= every


def test_weights_and_biases(fit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    cli = fit(WANDB)
    experiment = cli.trainer.logger.experiment
    flat = dict(experiment.config)
    assert flat["model"]["init_args"]["optimizer"]["init_args"]["lr"] == 0.01
    assert experiment.summary["train/loss"] is not None
    experiment.finish()
    assert list((tmp_path / "run").rglob("*.wandb"))


def test_mlflow(fit, tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    cli = fit(MLFLOW)
    logger = cli.trainer.logger
    run = logger.experiment.get_run(logger.run_id)
    assert run.data.params[RATE] == "0.01"
    assert "train/loss" in run.data.metrics and "val/pass_at_1" in run.data.metrics


@pytest.mark.slow
def test_the_search_of_the_page(tmp_path: Path, policy: Path, monkeypatch) -> None:
    pytest.importorskip("optuna")
    monkeypatch.chdir(tmp_path)
    change = merge(data(num_iterations=2), {"trainer": {"logger": False, "callbacks": []}})
    path = grpo_config(tmp_path / "run", policy, change)
    config = yaml.safe_load(path.read_text())
    del config["trainer"]["default_root_dir"]
    names = ("MajorityVoteEvaluation", "CurveWriter")
    config["trainer"]["callbacks"] = [{"class_path": f"r1lit.callbacks.{n}"} for n in names]
    path.write_text(yaml.safe_dump(config))
    code = SEARCH.replace("r1lit:mini/r1_zero.yaml", str(path)).replace("n_trials=8", "n_trials=2")
    found: dict[str, Any] = {}
    exec(code, found)
    assert [t.state.name for t in found["study"].trials] == ["COMPLETE", "COMPLETE"]
    assert 1e-5 <= found["study"].best_params["lr"] <= 1e-3
    assert sorted(os.listdir("runs/search")) == ["0", "1"]
