"""SIGTERM ends every command within ten seconds, and a fit with a checkpoint."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from http_server import HTTPServer, Received, hang
from tiny import ROOT, grpo_config, merge, metrics, model
from tiny_evaluation import evaluation_config
from waiting import wait_until

from r1lit.cli import main

LIMIT_S = 10.0
NOVAL = {"trainer": {"limit_val_batches": 0, "val_check_interval": 1}}


def config_of(
    folder: Path,
    policy: Path,
    every: int,
    change: dict[str, Any],
    grace_s: float = 1.0,
    **slow: Any,
) -> Path:
    """A run that saves every n iterations; two take three seconds each, the third takes long."""
    rewards = [
        {"class_path": "tiny.DigitShare"},
        {
            "class_path": "cli.slow_parts.SlowFrom",
            "init_args": {"folder": str(folder), "call": 3} | slow,
        },
    ]
    path = grpo_config(folder / "run", policy, merge(merge(model(rewards=rewards), NOVAL), change))
    config = yaml.safe_load(path.read_text())
    for callback in config["trainer"]["callbacks"]:
        if callback["class_path"].endswith("IterationCheckpoint"):
            callback["init_args"] |= {"every_n_iterations": every, "grace_s": grace_s}
    path.write_text(yaml.safe_dump(config))
    return path


@contextmanager
def running(config: Path, *args: str, command: str = "fit") -> Iterator[subprocess.Popen[str]]:
    """A command in a process group of its own, as ``timeout`` makes one."""
    path = os.pathsep.join(map(str, (ROOT, ROOT / "tests")))
    process = subprocess.Popen(
        [sys.executable, "-m", "r1lit.cli", command, "-c", str(config), *args],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def end(process: subprocess.Popen[str]) -> str:
    """Send SIGTERM as ``timeout`` does, to the process and to its group; return what it said."""
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    os.killpg(process.pid, signal.SIGTERM)
    said = process.communicate(timeout=60)[1]
    assert time.monotonic() - began < LIMIT_S, said[-3000:]
    assert process.returncode == 143 and "Traceback" not in said, said[-3000:]
    return said


def iterations_saved(folder: Path) -> int:
    saved = torch.load(folder / "run/checkpoints/last.ckpt", weights_only=False)
    return int(saved["state_dict"]["iteration"])


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return torch.load(folder / "checkpoints/last.ckpt", weights_only=False)["state_dict"]


def assert_resumes_exactly(folder: Path, policy: Path, config: Path, every: int) -> None:
    """Resumed, the run ends as one that was left alone."""
    config.write_text(config.read_text().replace("call: 3", "call: 300"))
    main(["fit", "-c", str(config), "--ckpt_path", "last", "--resume_changed", "true"])
    whole = config_of(folder / "whole", policy, every, {}, call=300)
    main(["fit", "-c", str(whole)])
    resumed, expected = weights(folder / "run"), weights(folder / "whole" / "run")
    assert resumed.keys() == expected.keys()
    assert all(torch.equal(resumed[name], expected[name]) for name in expected)
    assert [line["iteration"] for line in metrics(folder / "run")] == list(range(6))


@pytest.mark.long
def test_an_iteration_that_goes_on_is_left_and_the_one_before_it_saved(
    tmp_path: Path, policy: Path
) -> None:
    config = config_of(tmp_path, policy, every=4, change={})
    with running(config) as process:
        assert wait_until((tmp_path / "slow-0").exists, 60)
        said = end(process)
    assert "Stopped by SIGTERM after 2 iterations" in said
    assert "continue from its last checkpoint" in said
    assert iterations_saved(tmp_path) == 2
    assert_resumes_exactly(tmp_path, policy, config, every=4)


@pytest.mark.long
def test_an_iteration_that_ends_soon_is_saved(tmp_path: Path, policy: Path) -> None:
    config = config_of(tmp_path, policy, 4, {}, grace_s=5.0, seconds=1.0)
    with running(config) as process:
        assert wait_until((tmp_path / "slow-0").exists, 60)
        assert "Stopped by SIGTERM after 3 iterations" in end(process)
    assert iterations_saved(tmp_path) == 3


@pytest.mark.long
def test_before_the_first_iteration_ends_there_is_nothing_to_save(
    tmp_path: Path, policy: Path
) -> None:
    config = config_of(tmp_path, policy, 4, {}, call=1)
    with running(config) as process:
        assert wait_until((tmp_path / "slow-0").exists, 60)
        assert "no checkpoint was saved" in end(process)


@pytest.mark.long
@pytest.mark.parametrize("rank", [0, 1, None], ids=["rank 0", "rank 1", "both"])
def test_two_ranks_end_too_whichever_is_busy(
    tmp_path: Path, policy: Path, rank: int | None
) -> None:
    """The other one waits in a collective, where Python hears no signal."""
    ranks = {"trainer": {"devices": 2, "strategy": "ddp"}}
    config = config_of(tmp_path, policy, 4, ranks, rank=rank)
    with running(config) as process:
        assert wait_until((tmp_path / f"slow-{rank or 0}").exists, 60)
        time.sleep(1)
        end(process)
    assert iterations_saved(tmp_path) == 2


@pytest.mark.long
def test_two_ranks_save_an_iteration_that_ends_soon(tmp_path: Path, policy: Path) -> None:
    """Though the signal comes to one of them alone."""
    ranks = {"trainer": {"devices": 2, "strategy": "ddp"}}
    config = config_of(tmp_path, policy, 4, ranks, grace_s=5.0, seconds=1.5)
    with running(config) as process:
        assert wait_until((tmp_path / "slow-1").exists, 60)
        os.kill(int((tmp_path / "slow-1").read_text()), signal.SIGTERM)
        process.communicate(timeout=60)
        assert process.returncode == 143
    assert iterations_saved(tmp_path) == 3


@pytest.mark.long
def test_an_evaluation_ends_while_a_server_is_tried_again(tmp_path: Path, policy: Path) -> None:
    """And while a request is under way that takes an hour, which its thread waits for."""
    asked = threading.Event()

    def busy(received: Received) -> Any:
        asked.set()
        if received.path.endswith("version"):
            return {}
        return hang(3600) if received.index % 2 else (503, "busy")

    server = HTTPServer(busy)
    config = evaluation_config(tmp_path, policy)
    address = f"--model.engine.endpoint.url={server.base_url}"
    with running(
        config, "--model.engine=r1lit.rollout.ServerEngine", address, command="test"
    ) as it:
        assert asked.wait(60)
        time.sleep(3)
        end(it)
    server.close()
