"""bf16-mixed on a CPU without instructions for it becomes 32-true, with one line that says so."""

from __future__ import annotations

import pytest
import torch
import yaml

import r1lit.device.cpu.machine

BF16 = {
    "trainer": {"precision": "bf16-mixed", "val_check_interval": 1},
    "data": {"init_args": {"num_iterations": 1}},
}


def make(monkeypatch, fast: bool) -> None:
    monkeypatch.setattr(r1lit.device.cpu.machine, "has_fast_bfloat16", lambda: fast)


@pytest.fixture
def slow(monkeypatch):
    make(monkeypatch, fast=False)


@pytest.mark.long
def test_a_slow_cpu_computes_in_float32_and_its_config_says_so(fit, slow, tmp_path):
    with pytest.warns(UserWarning, match="precision: 32-true instead of bf16-mixed.*slow_bf16"):
        cli = fit("run", BF16)
    assert cli.trainer.precision == "32-true"
    saved = yaml.safe_load((tmp_path / "run/config.yaml").read_text())
    assert saved["trainer"]["precision"] == "32-true"


@pytest.mark.slow
@pytest.mark.skipif(torch.accelerator.is_available(), reason="auto means an accelerator here")
def test_auto_is_the_cpu_where_nothing_else_is(fit, slow):
    with pytest.warns(UserWarning, match="32-true instead of bf16-mixed"):
        cli = fit("run", BF16, {"trainer": {"accelerator": "auto"}})
    assert cli.trainer.precision == "32-true"


@pytest.mark.slow
def test_who_insists_gets_bf16(fit, slow):
    with pytest.warns(UserWarning, match="bf16-mixed is slow"):
        cli = fit("run", BF16, args=("--slow_bf16", "true"))
    assert cli.trainer.precision == "bf16-mixed"


@pytest.mark.slow
def test_a_fast_cpu_keeps_bf16(fit, monkeypatch):
    make(monkeypatch, fast=True)
    assert fit("run", BF16).trainer.precision == "bf16-mixed"
