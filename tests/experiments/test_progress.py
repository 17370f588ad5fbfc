"""How far a run is, read from its log while it is written."""

import time

import pytest
from waiting import wait_until

from experiments import sweep as sweep_module
from experiments.progress import followed, last_lines, progress_of


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

    sweep = sweep_module.read_sweep(sweep_file(seeds=[0]))
    assert len(sweep_module.run_sweep(sweep, launch=launch)) == 2
    assert "grpo seed 0  50%  acc 0.50\n" in "".join(printed)
