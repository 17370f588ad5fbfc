"""A run folder is not overwritten, and a run says at its end where its results lie."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tiny import ROOT, data, grpo_config, merge, model

from r1lit.batches import Response
from r1lit.cli import main
from r1lit.rewards import RewardFunction

NOVAL = {"trainer": {"limit_val_batches": 0, "val_check_interval": 1}}


class Stop(RewardFunction):
    """Sends the process a signal in the third iteration, if the environment names one."""

    name = "stop"

    def __init__(self, weight: float = 1.0) -> None:
        super().__init__(weight)
        self.calls = 0
        self.signal = int(os.environ.get("STOP", "0"))
        if self.signal:  # a process begun in the background ignores Ctrl-C
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        self.calls += 1
        if self.signal and self.calls == 3:
            os.kill(os.getpid(), self.signal)
        return [float(row % 2) for row in range(len(responses))]


class StopInABatch(RewardFunction):
    """Sends the process SIGTERM, and writes a file if it is called on."""

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        os.kill(os.getpid(), signal.SIGTERM)
        Path(os.environ["WENT_ON"]).touch()
        return [0.0] * len(responses)


def evaluated(run: Path) -> list[int]:
    return [e["iteration"] for e in json.loads((run / "summary.json").read_text())]


@pytest.fixture
def finished(tmp_path: Path, policy: Path) -> Path:
    config = grpo_config(tmp_path / "run", policy, merge(data(num_iterations=2), NOVAL))
    main(["fit", "-c", str(config)])
    return config


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(f): f.read_bytes()
        for f in folder.rglob("*")
        if f.is_file() and not f.name.startswith((".", "events."))
    }


@pytest.mark.long
def test_a_finished_run_is_not_begun_again(finished: Path, tmp_path: Path, monkeypatch) -> None:
    before = files(tmp_path / "run")
    with pytest.raises(ValueError, match=r"^run: .*/run holds a run.*--ckpt_path last.*--run$"):
        main(["fit", "-c", str(finished)])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"^run: run holds a run"):
        main(["fit", "-c", str(finished), "--run", "run"])
    assert files(tmp_path / "run") == before


@pytest.mark.long
def test_nor_is_one_without_a_checkpoint(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "run" / "checkpoints" / "last.ckpt").unlink()
    with pytest.raises(ValueError, match=r"^run: .*/run holds a run without a checkpoint"):
        main(["fit", "-c", str(finished)])


@pytest.mark.long
def test_the_end_says_where_results_lie(capsys, tmp_path: Path, policy: Path) -> None:
    change = merge(data(num_iterations=2), NOVAL)
    finished = grpo_config(tmp_path / "run", policy, change)
    main(["fit", "-c", str(finished)])
    said = capsys.readouterr().err
    assert f"Finished after 2 iterations: {tmp_path / 'run'}\n" in said
    assert "summary.json, metrics.jsonl, responses.jsonl, policy\n" in said
    main(["fit", "-c", str(finished), "--ckpt_path", "last"])
    assert "Nothing to train, 2 iterations were made before: " in capsys.readouterr().err
    main(["fit", "-c", str(finished), "--ckpt_path", "last", "--data.num_iterations", "3"])
    assert "Finished after 3 iterations" in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.parametrize(
    ("number", "status", "how"),
    [
        (signal.SIGINT, 130, "Interrupted after 3"),  # it is finished and saved
        (signal.SIGTERM, 143, "Stopped by SIGTERM after"),
    ],
    ids=["Ctrl-C", "SIGTERM"],
)
def test_who_stops_a_run_is_told_how_to_go_on(
    tmp_path: Path, policy: Path, number: int, status: int, how: str
) -> None:
    rewards = [{"class_path": "cli.test_nothing_in_silence.Stop"}]
    config = grpo_config(tmp_path / "run", policy, merge(model(rewards=rewards), NOVAL))
    command = [sys.executable, "-m", "r1lit.cli", "fit", "-c", str(config)]
    path = os.pathsep.join(map(str, (ROOT, ROOT / "tests")))
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "STOP": str(int(number))},
    )
    assert done.returncode == status and "Traceback" not in done.stderr
    assert how in done.stderr and f"iterations: {tmp_path / 'run'}\n" in done.stderr
    assert "the same command with --ckpt_path last\n" in done.stderr
    is_saved = (tmp_path / "run/checkpoints/last.ckpt").exists()
    assert is_saved and ("finishing the iteration" in done.stderr) == (number == signal.SIGINT)
    main(["fit", "-c", str(config), "--ckpt_path", "last"])
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 6


@pytest.mark.long
def test_sigterm_ends_an_evaluation_in_the_middle_of_its_only_batch(
    tmp_path: Path, policy: Path
) -> None:
    rewards = [{"class_path": "cli.test_nothing_in_silence.StopInABatch"}]
    config = grpo_config(tmp_path / "run", policy, model(rewards=rewards))
    path = os.pathsep.join(map(str, (ROOT, ROOT / "tests")))
    done = subprocess.run(
        [sys.executable, "-m", "r1lit.cli", "validate", "-c", str(config)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "WENT_ON": str(tmp_path / "went_on")},
    )
    assert done.returncode == 143 and "Traceback" not in done.stderr, done.stderr[-2000:]
    assert not (tmp_path / "went_on").exists()


@pytest.mark.long
@pytest.mark.parametrize("interval", [3, 4])
def test_the_last_iteration_is_evaluated_and_resumed_behind(
    tmp_path: Path, policy: Path, interval: int
) -> None:
    change = merge(data(num_iterations=4), {"trainer": {"val_check_interval": 2}})
    config = str(grpo_config(tmp_path / "run", policy, change))
    every = f"--trainer.val_check_interval={interval}"
    main(["fit", "-c", config, every])
    expected = sorted({0, 4, *range(0, 5, interval)})
    assert evaluated(tmp_path / "run") == expected
    main(["fit", "-c", config, every, "--ckpt_path", "last"])
    assert evaluated(tmp_path / "run") == expected
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 4
    main(["fit", "-c", config, every, "--ckpt_path", "last", "--data.num_iterations", "5"])
    assert evaluated(tmp_path / "run") == [*expected, 5]
