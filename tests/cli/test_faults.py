"""Disks that refuse and checkpoints of other runs end a run in one line that says what to do."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tiny import ROOT, data, grpo_config, merge, model, save_policy

from r1lit.cli import main
from r1lit.console import run_script

SHORT = merge(
    data(num_iterations=1), {"trainer": {"limit_val_batches": 0, "val_check_interval": 1.0}}
)


def end_of(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    """Run ``r1lit fit`` as its script does; return the one line it ends in."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        run_script("r1lit", lambda: main(["fit", *args]))
    assert ended.value.code == 2
    last = capsys.readouterr().err.rstrip("\n").splitlines()[-1]
    assert last.startswith("r1lit: error: "), last
    return last


ALONE = {"enable_checkpointing": False}


@contextmanager
def files_of_at_most(num_bytes: int) -> Iterator[None]:
    """What a full disk does to a write, done by the kernel (SIGXFSZ is ignored by Python)."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.fixture
def fit(tmp_path: Path, policy: Path):
    """Write the YAML of a short run; return its ``-c`` arguments."""

    def arguments(change: dict[str, Any] | None = None, name: str = "run") -> list[str]:
        path = grpo_config(tmp_path / name, policy, merge(SHORT, change or {}))
        return ["-c", str(path)]

    return arguments


@pytest.mark.long
@pytest.mark.parametrize(
    ("num_bytes", "what"), [(0, ""), (2_000, ""), (60_000, "checkpoint"), (400_000, "checkpoint")]
)
def test_a_full_disk(tmp_path, fit, capsys, num_bytes, what):
    arguments = fit()
    with files_of_at_most(num_bytes):
        line = end_of(capsys, *arguments)
    assert "File too large" in line and str(tmp_path) in line and what in line
    assert ("there is none before it" if what else "or begins again without a checkpoint") in line
    left = [p.name for p in (tmp_path / "run").rglob("*") if p.name.endswith(".tmp")]
    assert len(left) <= 1  # a checkpoint's, which the next run removes
    assert not (tmp_path / "run/checkpoints/last.ckpt").exists()


@pytest.mark.long
def test_the_export_of_a_policy_that_does_not_fit(tmp_path, policy, fit, capsys):
    """Weights of their own are smaller than a checkpoint, so only they are written here."""
    callbacks = [
        {
            "class_path": "r1lit.callbacks.ExportHuggingFace",
            "init_args": {"dirpath": str(tmp_path / "out")},
        }
    ]
    arguments = fit({"trainer": {"callbacks": callbacks, "logger": False, **ALONE}})
    main(["fit", *arguments])
    before = (tmp_path / "out/model.safetensors").read_bytes()
    with files_of_at_most(20_000):
        line = end_of(capsys, *arguments)
    assert "the policy cannot be written to" in line and "is intact" in line
    assert (tmp_path / "out/model.safetensors").read_bytes() == before


@pytest.mark.skipif(not os.path.ismount("/sys"), reason="needs a folder that refuses root, too")
@pytest.mark.parametrize("where", ["/sys/kernel/r1lit", "/sys/kernel"])
def test_a_folder_that_cannot_be_written(tmp_path, policy, capsys, where):
    path = grpo_config(tmp_path / "run", policy, SHORT)
    path.write_text(path.read_text().replace(str(tmp_path / "run"), where))
    line = end_of(capsys, "-c", str(path))
    assert where in line and "events" not in line  # TensorBoard fails late, with a traceback
    assert "Read-only" in line or "not permitted" in line or "denied" in line


@pytest.mark.long
@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_an_empty_and_a_cut_checkpoint(tmp_path, fit, capsys, share):
    arguments = fit()
    main(["fit", *arguments])
    last = tmp_path / "run/checkpoints/last.ckpt"
    os.truncate(last, int(last.stat().st_size * share))
    line = end_of(capsys, *arguments, "--ckpt_path", "last")
    assert f"ckpt_path: {last} is damaged" in line and "an older checkpoint" in line


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layers": 3}, "is not there and"),
        ({"width": 64}, "(1416, 32) and is (1416, 64)"),
    ],
)
def test_a_checkpoint_of_another_policy(tmp_path, fit, capsys, change, message):
    arguments = fit()
    main(["fit", *arguments])
    other = save_policy(tmp_path / "other", **change)
    arguments = fit(model(policy=str(other)))
    line = end_of(capsys, *arguments, "--ckpt_path", "last", "--resume_changed", "true")
    assert "ckpt_path: the checkpoint is of another policy than" in line
    assert "begin again in another folder" in line


@pytest.mark.long
@pytest.mark.parametrize(
    ("betas", "message"),
    [
        ((0.04, 0.0), "has a reference, and this run none"),
        ((0.0, 0.04), "has no reference, and this run one"),
    ],
)
def test_a_reference_that_comes_or_goes(tmp_path, fit, capsys, betas, message):
    begun, changed = (["--model.init_args.objective.beta", str(beta)] for beta in betas)
    arguments = fit()
    main(["fit", *arguments, *begun])
    line = end_of(capsys, *arguments, *changed, "--ckpt_path", "last", "--resume_changed", "true")
    assert message in line and "objective.beta was" in line and "step read it" in line


@pytest.mark.long
def test_a_checkpoint_of_another_optimizer(tmp_path, fit, capsys):
    main(["fit", *fit()])
    sgd = {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.01}}
    arguments = fit(model(optimizer=sgd))
    line = end_of(capsys, *arguments, "--ckpt_path", "last", "--resume_changed", "true")
    assert "ckpt_path: the checkpoint is of another optimizer than SGD" in line
    assert "momentum" in line


def test_what_is_no_fault_of_the_disk_keeps_its_traceback():
    def main() -> None:
        raise ConnectionResetError(errno.ECONNRESET, "reset")

    with pytest.raises(ConnectionResetError):
        run_script("r1lit", main)


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_has_gone_ends_a_command_without_a_word(unbuffered):
    """As ``r1lit --help | head -1`` does."""
    command = [sys.executable, "-c", "from r1lit.cli import run; run()", "--help"]
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": environment}
    with subprocess.Popen(command, cwd=ROOT, **pipe) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_a_broken_pipe_that_is_not_standard_output_keeps_its_traceback():
    def main() -> None:
        raise BrokenPipeError(errno.EPIPE, "broken")

    with pytest.raises(BrokenPipeError):
        run_script("r1lit", main)


def test_an_error_is_reported_though_nobody_reads_the_output():
    """As of ``r1lit fit … | head -1`` with bad input."""
    program = (
        "from r1lit.console import run_script\n"
        "def main():\n"
        "    print('a line')\n"
        "    raise ValueError('key: 3 is too many')\n"
        "run_script('r1lit', main)\n"
    )
    command = [sys.executable, "-c", program]
    environment = os.environ | {"PYTHONUNBUFFERED": ""}  # or the line itself cannot be written
    pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": environment}
    with subprocess.Popen(command, cwd=ROOT, **pipe) as process:
        process.stdout.close()
        assert process.stderr.read() == b"r1lit: error: key: 3 is too many\n"
    assert process.returncode == 2
