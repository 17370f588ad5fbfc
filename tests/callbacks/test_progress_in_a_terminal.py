"""The display in a terminal, a real pseudo-terminal: it moves within an iteration."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path

import pytest
import yaml
from tiny import ROOT

from r1lit.cli.waiting import counting_seconds
from r1lit.rollout.progress import reported, watch

SMALL = {
    "model": {
        "init_args": {
            "objective": {"init_args": {"max_tokens": 24}},
            "sampling": {"temperature": 1.0, "max_tokens": 24},
            "max_tokens_from": None,
            "validation_sampling": {"temperature": 1.0, "max_tokens": 24},
            "train_batch_size": 4,
            "engine": {"init_args": {"compile": False}},
        }
    },
    "data": {
        "init_args": {
            "rollout": {"prompts_per_iteration": 3, "group_size": 4},
            "num_iterations": 2,
            "evaluation": {"num_samples": 1},
        }
    },
    "trainer": {"val_check_interval": 2, "precision": "32-true"},
}


class Terminal:
    """A pseudo-terminal: ``file`` writes to it, ``text`` is what has come out once it is closed."""

    def __init__(self) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))  # 80 columns
        self.file = os.fdopen(slave, "w")
        self._chunks: list[bytes] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                chunk = os.read(self._master, 4096)
            except OSError:  # all writers have closed it
                return
            self._chunks.append(chunk)

    def text(self) -> str:
        self.file.close()
        self._reader.join(30)
        os.close(self._master)
        return b"".join(self._chunks).decode()


def small_fit(folder: Path) -> list[str]:
    folder.mkdir()
    change = folder / "small.yaml"
    change.write_text(yaml.safe_dump({**SMALL, "run": str(folder / "run")}))
    shipped = str(ROOT / "configs/mini/aha.yaml")
    return [sys.executable, "-m", "r1lit.cli", "fit", "-c", shipped, "-c", str(change)]


def numbers(folder: Path) -> list[dict[str, float]]:
    lines = (folder / "run" / "metrics.jsonl").read_text().splitlines()
    timed = re.compile(r"seconds$|^time/|^speed/|memory")
    return [{k: v for k, v in json.loads(x).items() if not timed.search(k)} for x in lines]


@pytest.mark.long
def test_a_terminal_shows_parts_of_an_iteration_and_changes_no_number(tmp_path):
    terminal = Terminal()
    on_terminal = subprocess.Popen(
        small_fit(tmp_path / "on"), cwd=ROOT, stdout=terminal.file, stderr=terminal.file
    )
    assert on_terminal.wait() == 0, terminal.text()
    shown = terminal.text()
    piped = subprocess.run(
        small_fit(tmp_path / "off"), cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert re.search(r"loading PyTorch and Lightning … \d+ s", shown)
    for iteration in (1, 2):
        assert f"iteration {iteration}/2  rollout 100 %" in shown
        assert f"iteration {iteration}/2  update 3 of 3" in shown
    assert "48 of 48 responses" in shown  # of the evaluations
    last = [part for part in re.split(r"[\r\n]", shown) if "iteration 2/2" in part][-1]
    assert "rollout" not in last and "update" not in last

    logged = piped.stdout + piped.stderr
    for word in ("\r", "\x1b", "loading PyTorch", "rollout 100 %", "update 3 of 3"):
        assert word not in logged
    assert logged.count("iteration 2/2") == 2  # after it, and after its evaluation
    assert numbers(tmp_path / "on") == numbers(tmp_path / "off") != []


def test_seconds_are_counted_in_a_terminal_and_cleared(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal.file)
    with counting_seconds("loading"):
        time.sleep(1.3)
    assert terminal.text().split("\r\x1b[K") == ["", "loading … 0 s", "loading … 1 s", ""]


def test_an_error_while_seconds_are_counted_clears_the_line(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal.file)
    with pytest.raises(ImportError), counting_seconds("loading"):
        raise ImportError
    assert terminal.text().endswith("\r\x1b[K")


def test_nothing_is_counted_elsewhere(capsys):
    with counting_seconds("loading"):
        pass
    assert capsys.readouterr() == ("", "")


def test_watchers_hear_how_many_responses_have_ended():
    heard: list[tuple[int, int]] = []
    finished: list[list[int]] = []

    def on_finished(indices, completions):
        finished.append(list(indices))

    assert reported(on_finished, 3) is on_finished  # nobody watches
    end = watch(lambda num_ended, num_responses: heard.append((num_ended, num_responses)))
    told = reported(on_finished, 3)
    told([2], ["c"])
    told([0, 1], ["a", "b"])
    end()
    assert heard == [(0, 3), (1, 3), (3, 3)]
    assert finished == [[2], [0, 1]]
    assert reported(on_finished, 3) is on_finished
    end()  # twice does no harm
