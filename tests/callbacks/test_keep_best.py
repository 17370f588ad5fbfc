"""The policy of the best evaluation is kept, and runs that end early say by what."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from safetensors.torch import load_file
from tiny import ROOT, data, grpo_config, metrics

from r1lit.callbacks import KeepBest
from r1lit.callbacks.progress import iterations
from r1lit.cli import main


@pytest.fixture
def fit(tmp_path: Path, policy: Path):
    """Train a tiny policy with further callbacks."""

    def run(*callbacks: dict[str, Any], iterations: int = 2, options: tuple[str, ...] = ()) -> Path:
        path = grpo_config(tmp_path / "run", policy, data(num_iterations=iterations))
        config = yaml.safe_load(path.read_text())
        config["trainer"] |= {"val_check_interval": 1}
        config["trainer"]["callbacks"] += callbacks
        path.write_text(yaml.safe_dump(config))
        main(["fit", "-c", str(path), *options])
        return tmp_path / "run"

    return run


def watcher(name: str, **arguments: Any) -> dict[str, Any]:
    return {"class_path": name, "init_args": arguments}


@pytest.mark.long
def test_the_folder_holds_the_best_evaluation(fit):
    """The length of responses stands for a number that is best before the end."""
    run = fit(watcher("r1lit.callbacks.KeepBest", monitor="val/length/mean"), iterations=3)
    values = {
        line["iteration"]: line["response_length_tokens"]
        for line in json.loads((run / "summary.json").read_text())
    }
    best = json.loads((run / "best/best.json").read_text())
    highest = max(values.values())
    assert best["value"] == pytest.approx(highest) and best["monitor"] == "val/length/mean"
    assert best["iteration"] == next(i for i, value in values.items() if value == highest)
    kept = load_file(run / "best/model.safetensors")
    last = load_file(run / "policy/model.safetensors")
    same = all(bool((kept[name] == last[name]).all()) for name in last)
    assert same == (best["iteration"] == len(metrics(run)))


def trainer_with(**logged: float) -> Any:
    strategy = SimpleNamespace(broadcast=lambda decision: decision)
    return SimpleNamespace(
        state=SimpleNamespace(fn="fit"), sanity_checking=False, callback_metrics=logged,
        strategy=strategy, is_global_zero=False,
    )  # fmt: skip


@pytest.mark.parametrize(("mode", "kept"), [("max", [0.2, 0.4]), ("min", [0.2, 0.1])])
def test_only_a_better_value_is_exported(mode, kept, monkeypatch):
    callback, exported = KeepBest(mode=mode), []
    monkeypatch.setattr(callback, "export", lambda *_: exported.append(callback.best))
    for value in (float("nan"), 0.2, 0.4, 0.4, 0.1):
        callback.on_validation_end(trainer_with(**{"val/pass_at_1": value}), None)
    assert exported == kept
    resumed = KeepBest(mode=mode)
    resumed.load_state_dict(callback.state_dict())
    assert resumed.best == kept[-1]


@pytest.mark.parametrize("changed", [{"monitor": "val/loss"}, {"mode": "min"}])
def test_the_best_of_another_number_is_no_bar(changed):
    before = KeepBest()
    before.best = 0.4
    resumed = KeepBest(**changed)
    resumed.load_state_dict(before.state_dict())
    assert resumed.best is None
    resumed.load_state_dict({"best": 0.4})  # of an older version, which did not say of what
    assert resumed.best == 0.4


def test_a_number_that_no_evaluation_logs_is_named():
    with pytest.raises(ValueError, match=r"KeepBest\.monitor: 'train/loss' is no held-out number"):
        KeepBest("train/loss")
    with pytest.raises(ValueError, match=r"no evaluation logs 'val/pas_at_1'; there are val/loss$"):
        KeepBest("val/pas_at_1").on_validation_end(trainer_with(**{"val/loss": 1.0}), None)


EARLY = "lightning.pytorch.callbacks.EarlyStopping"


@pytest.mark.long
def test_early_stopping_looks_at_held_out_numbers_alone(fit, capsys):
    with pytest.raises(ValueError, match=r"^EarlyStopping\.monitor: 'train/loss' is no held-out"):
        fit(watcher(EARLY, monitor="train/loss"))
    capsys.readouterr()
    stop = watcher(EARLY, monitor="val/pass_at_1", mode="max", patience=1, min_delta=2.0)
    run = fit(stop, iterations=5)
    made = len(metrics(run))
    assert 0 < made < 5
    err = capsys.readouterr().err
    assert f"Stopped by EarlyStopping after {iterations(made)} of 5: {run}" in err
    assert "to go on: change EarlyStopping and add --ckpt_path last" in err
    more = ("--ckpt_path", "last", "--trainer.callbacks.patience", "9")
    assert len(metrics(fit(stop, iterations=5, options=more))) == 5, "its patience is the new one"


@pytest.mark.long
def test_a_run_out_of_time_says_so(fit, capsys):
    run = fit(iterations=400, options=("--trainer.max_time", "00:00:00:01"))
    err = capsys.readouterr().err
    made = len(metrics(run))
    assert f"Stopped by trainer.max_time after {iterations(made)} of 400: {run}" in err
    assert "to go on: change trainer.max_time and add --ckpt_path last" in err


@pytest.mark.long
def test_a_trial_says_that_it_was_one(fit, capsys):
    fit(options=("--trainer.fast_dev_run", "true"))
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == "Finished after 1 iteration of a trial; it has no run folder"


@pytest.mark.long
def test_the_debug_config_makes_two_iterations_with_a_profile(tmp_path, policy, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = grpo_config(tmp_path / "run", policy, data(num_iterations=50))
    main(["fit", "-c", str(path), "-c", str(ROOT / "configs/debug/two_iterations.yaml")])
    profile = tmp_path / "runs/debug/profile.txt"
    assert len(metrics(tmp_path / "run")) == 2 and profile.stat().st_size > 100
