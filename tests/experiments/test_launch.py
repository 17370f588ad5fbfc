"""Commands of experiments: how they end, and how far a run is, read from its log."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tiny import ROOT
from waiting import wait_until

from experiments import sweep as sweep_module
from experiments.launch import error_in, followed, last_lines, progress_of, reported, start
from experiments.sweep import read_sweep


def interrupted() -> int:
    raise KeyboardInterrupt


def missing() -> int:
    return len(Path("no_such.yaml").read_text())


@pytest.mark.parametrize(
    ("main", "status", "said"),
    [
        (lambda: 1, 1, ""),
        (lambda: int("x"), 2, "study: error: invalid literal"),
        (missing, 2, "study: error: [Errno 2] No such file or directory: 'no_such.yaml'"),
        (interrupted, 130, "study: stopped; the same command goes on from here"),
    ],
)
def test_an_end_is_a_status_and_a_line(main, status, said, capsys):
    assert reported("study")(main)() == status
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == bool(said) and all(line.startswith(said) for line in lines)


def test_the_traceback_can_be_had(monkeypatch):
    monkeypatch.setenv("R1LIT_TRACEBACK", "1")
    with pytest.raises(ValueError, match="invalid literal"):
        reported("study")(lambda: int("x"))()


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("raise ValueError('lr: -1 is below 0')", "ValueError: lr: -1 is below 0"),
        ("raise RuntimeError('first\\nsecond')", "RuntimeError: first"),
        ("import torch; raise torch.OutOfMemoryError('48 GiB')", "torch.OutOfMemoryError: 48 GiB"),
        ("class Own(Exception): pass\nraise Own('mine')", "Own: mine"),
        ("raise SystemExit(3)", "nothing in its log (status 3)"),
        ("print('begun', flush=True); import os; os.kill(os.getpid(), 9)", "begun (killed by sig"),
    ],
)
def test_a_failed_point_says_why_in_one_line(tmp_path, program, says):
    log = tmp_path / "log.txt"
    status = start([sys.executable, "-c", program], log).wait()
    assert status != 0
    error = error_in(log, status)
    assert "\n" not in error and says in error


def test_a_status_is_shown_once_and_only_what_is_written_after_the_start(tmp_path):
    log, seen = tmp_path / "log.txt", []
    log.write_text("iteration 1/4  acc 0.10\n")
    with followed(log, seen.append, every_s=0.01):
        time.sleep(0.1)
        assert seen == []
        with log.open("a") as file:
            file.write("iteration 2/4  acc 0.20\n")
        assert wait_until(lambda: seen, 20)
        time.sleep(0.1)
        with log.open("a") as file:
            file.write("a warning\nevaluation: 25%|##  | 3/4 [00:01<00:03]\r")
        assert wait_until(lambda: len(seen) == 2, 20)
    with log.open("a") as file:
        file.write("iteration 4/4  acc 0.40\n")
    time.sleep(0.1)
    assert seen == ["50%  acc 0.20", "75%"]


def test_a_reader_that_has_gone_ends_a_study_without_a_word():
    """As of ``python -m experiments --list | head -1``."""
    command = [sys.executable, "-m", "experiments", "--list"]
    pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    for unbuffered in ("", "1"):
        environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
        with subprocess.Popen(command, cwd=ROOT, env=environment, **pipe) as process:
            process.stdout.close()
            assert process.stderr.read() == b""
        assert process.returncode == 141


@pytest.mark.parametrize(
    ("text", "progress"),
    [
        ("", None),
        ("loading\n", None),
        ("iteration 3/12  acc 0.61  3:10 left\nsaved\n", (0.25, "acc 0.61  3:10 left")),
        ("iteration 3/12  acc 0.61\n 50%|#  | 6/12 [00:01]\r 75%|#  | 9/12 [00:02]", (0.75, "")),
    ],
)
def test_progress_is_the_last_line_of_either_bar(tmp_path, text, progress):
    log = tmp_path / "log.txt"
    assert progress_of(log) is None
    log.write_text(text)
    assert progress_of(log) == progress


def test_last_lines_are_what_a_terminal_would_leave(tmp_path):
    log = tmp_path / "log.txt"
    assert last_lines(log) == []
    log.write_bytes(b"one\r\n1/2\r2/2\n\nthree\n")
    assert last_lines(log) == ["one", "2/2", "three"]
    assert last_lines(log, 1) == ["three"]


def test_a_sweep_prints_where_a_point_is(sweep_file, monkeypatch, capsys):
    monkeypatch.setattr(sweep_module, "LINE_S", 0.01)
    printed = []

    def is_printed():
        printed.append(capsys.readouterr().out)
        return "50%" in "".join(printed)

    def launch(arguments, log):
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("iteration 1/2  acc 0.50\n")
        assert wait_until(is_printed, 20)
        return 1

    sweep = read_sweep(sweep_file(seeds=[0]))
    assert len(sweep_module.run_sweep(sweep, launch=launch)) == 2
    assert "grpo seed 0  50%  acc 0.50\n" in "".join(printed)
