"""bf16-mixed on a CPU without instructions for it becomes 32-true, with one line that says so."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings

import pytest
import torch
import yaml
from tiny import ROOT

import r1lit.device.cpu.machine
from r1lit.modules.device_settings import check_precision

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


def test_a_gpu_below_8_0_hears_that_bf16_is_slow_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (7, 5))
    with pytest.warns(UserWarning, match="bf16-mixed is slow on this GPU.*32-true is faster"):
        check_precision("bf16-mixed", torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_precision("bf16-mixed", torch.device("cuda"))


def test_float16_is_refused_with_what_such_a_gpu_takes_instead():
    with pytest.raises(
        ValueError, match=r"precision: '16-mixed'.*scaled losses.*trains in 32-true"
    ):
        check_precision("16-mixed", torch.device("cuda"))


@pytest.mark.parametrize("fast", [True, False])
def test_make_aha_adds_a_file_where_bfloat16_is_slow_and_says_so(tmp_path, fast):
    (tmp_path / "sitecustomize.py").write_text(
        "import torch\n"
        "torch.cpu._is_avx512_bf16_supported = torch.cpu._is_amx_tile_supported = "
        f"lambda: {fast}\n"
        "torch.ops.mkldnn._is_mkldnn_bf16_supported = torch.cpu._is_amx_tile_supported\n"
    )
    (tmp_path / "r1lit").write_text('#!/bin/sh\necho "ran: $*"\n')
    (tmp_path / "r1lit").chmod(0o755)
    (tmp_path / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (tmp_path / "python").chmod(0o755)
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    made = subprocess.run(
        ["make", "-o", ".venv/.installed", "aha", f"BIN={tmp_path}", f"AHA={tmp_path / 'run'}"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        check=True,
        capture_output=True,
        text=True,
    )
    also = "" if fast else " -c configs/mini/aha_float32.yaml"
    assert f"ran: fit -c configs/mini/aha.yaml{also} --ckpt_path last\n" in made.stdout
    assert ("no instructions for bfloat16" in made.stdout) is not fast
