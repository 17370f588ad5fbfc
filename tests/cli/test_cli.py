"""The console script: help that helps, one line for bad input."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from jsonargparse import Namespace
from tiny import data, grpo_config, model

from r1lit.callbacks import R1ProgressBar
from r1lit.cli import hub_is_out_of_reach, main
from r1lit.cli.command import check_validation, warn_of_no_effect
from r1lit.data import PackingOptions


@pytest.mark.slow
def test_bad_input_ends_in_one_line_and_status_2(tmp_path: Path, policy: Path) -> None:
    config = grpo_config(tmp_path / "run", policy, model(train_batch_size=7))
    done = subprocess.run(
        [sys.executable, "-m", "r1lit.cli", "fit", "-c", str(config)],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(Path(__file__).parents[1]), "PATH": ""},
    )
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1].startswith("r1lit: error: train_batch_size: 7")
    assert "Traceback" not in done.stderr


def test_evaluations_may_be_rarer_than_epochs_only_where_they_are_counted_over_them() -> None:
    def check(epochs: int | None) -> int:
        trainer = Namespace(
            val_check_interval=5, check_val_every_n_epoch=epochs, limit_val_batches=None,
            fast_dev_run=False,
        )  # fmt: skip
        data = Namespace(init_args=Namespace(num_iterations=2))
        check_validation(Namespace(trainer=trainer, data=data))
        return trainer.val_check_interval

    assert check(None) == 5
    message = r"val_check_interval: 5 is more than data\.num_iterations: 2, so the last"
    with pytest.warns(UserWarning, match=message):
        assert check(1) == 2


def test_a_name_without_an_address_is_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("r1lit.cli.getproxies", dict)
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    assert hub_is_out_of_reach("no-such-host.invalid", wait_s=30)
    assert not hub_is_out_of_reach("localhost", wait_s=30)
    monkeypatch.setattr("r1lit.cli.getproxies", lambda: {"https": "http://proxy"})
    assert not hub_is_out_of_reach("no-such-host.invalid", wait_s=30)


def test_a_group_of_keys_without_effect_is_warned_of(recwarn: pytest.WarningsRecorder) -> None:
    def data(**sources: object) -> Namespace:
        arguments = {"train": None, "documents": None, "validation_documents": None} | sources
        return Namespace(class_path="r1lit.data.R1DataModule", init_args=Namespace(arguments))

    named = {"data": {"class_path": "R1DataModule", "init_args": {"packing": {"max_seq_len": 9}}}}
    warn_of_no_effect(named, data(documents=[1]))
    warn_of_no_effect({"data": {"init_args": {"rollout": {}}}}, data(train=[1]))
    written = {"data": {"init_args": {"packing": asdict(PackingOptions()), "rollout": None}}}
    warn_of_no_effect(written, data(train=[1]))  # as config.yaml of a run has it
    assert not recwarn.list
    with pytest.warns(
        UserWarning, match=r"^data\.packing: it has no effect .* no data\.documents$"
    ):
        warn_of_no_effect(named, data(train=[1]))


@pytest.mark.long
def test_validate_prints_the_numbers_that_matter(
    tmp_path: Path, policy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cli = main(["validate", "-c", str(grpo_config(tmp_path / "run", policy))])
    found = cli.trainer.callback_metrics
    lines = capsys.readouterr().out.splitlines()[-7:]
    named = {line.split()[0]: float(line.split()[1]) for line in lines[:-1]}
    assert len(named) == 6 and {"pass_at_1", "pass_at_4", "reward", "length/mean"} <= {*named}
    assert all(value == float(f"{found[f'val/{name}']:.4g}") for name, value in named.items())
    assert lines[0].split()[2:] == ["±", f"{float(found['val/pass_at_1_stderr']):.2g}"]
    assert lines[-1] == f"{len(found) - 7} more with --verbose true"


@pytest.mark.long
def test_the_bar_of_a_yaml_goes_where_none_is_wanted(tmp_path: Path, policy: Path) -> None:
    bar = {"class_path": "r1lit.callbacks.R1ProgressBar"}
    one = {"limit_val_batches": 0, "val_check_interval": 1, "logger": False, "callbacks": [bar]}
    config = grpo_config(tmp_path, policy, {**data(num_iterations=1), "trainer": one})
    for shown in (True, False):
        cli = main(["fit", "-c", str(config), f"--trainer.enable_progress_bar={shown}"])
        listed = [type(callback) for callback in cli.trainer.callbacks]
        assert (R1ProgressBar in listed) == shown
