"""How a command of an experiment ends: its exit status, and the line that says why."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.command import reported


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
