"""Two "nodes" train as one process, and a failure of one rank ends all, whoever started them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from modules.failing_ranks import NUM_RANKS
from safetensors.torch import load_file
from test_ddp import SGD, fit_in_a_process
from test_fsdp2 import sharded
from tiny import ROOT, data, grpo_config, merge, model

from r1lit.files import read_records

pytestmark = pytest.mark.slow


def torchrun(config: Path, num_nodes: int, *first: Path) -> list[tuple[int, str]]:
    """Run a command by as many torchruns as nodes; return their statuses and what they print."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", str(num_nodes)]
    command += ["--nproc-per-node", str(NUM_RANKS // num_nodes), "--rdzv-backend", "c10d"]
    command += ["--rdzv-endpoint", f"127.0.0.1:{port}", "--local-addr", "127.0.0.1"]
    command += ["-m", "r1lit.cli", "fit"]
    command += [word for path in (*first, config) for word in ("-c", str(path))]
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    logs = [config.with_name(f"node-{node}.txt") for node in range(num_nodes)]
    nodes = []
    for log in logs:
        with log.open("w") as file:
            nodes.append(
                subprocess.Popen(
                    command,
                    env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    cwd=config.parent,
                )
            )
    try:
        statuses = [node.wait(240) for node in nodes]
    finally:
        for node in nodes:
            node.kill()
            node.wait()
    return list(zip(statuses, (log.read_text() for log in logs), strict=True))


def over(num_nodes: int) -> dict[str, Any]:
    each = NUM_RANKS // num_nodes
    return {"trainer": {"devices": each, "num_nodes": num_nodes, "strategy": "ddp"}}


@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_two_nodes_make_the_update_of_one_process(tmp_path: Path, policy: Path, strategy: str):
    engine = {"class_path": "r1lit.rollout.InProcessEngine"}
    settings = {"train_batch_size": 16, "micro_batch_tokens": 256, "optimizer": SGD}
    change = merge(model(**settings, engine=engine), data(num_iterations=2))
    alone = grpo_config(tmp_path / "one", policy, change)
    done = fit_in_a_process(alone, tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    ranks, shipped = over(2), []
    if strategy != "ddp":
        shipped = [ROOT / "configs" / "hardware" / f"{n}.yaml" for n in (strategy, "multi_node")]
        ranks["trainer"] |= sharded(2)["trainer"] | {"devices": 1, "precision": "32-true"}
    both = grpo_config(tmp_path / "two", policy, merge(change, ranks))
    for status, printed in torchrun(both, 2, *shipped):
        assert status == 0, printed[-3000:]

    one, two = (load_file(tmp_path / n / "policy" / "model.safetensors") for n in ("one", "two"))
    before = load_file(policy / "model.safetensors")
    assert any(not torch.equal(one[name], before[name]) for name in one)
    for name, value in one.items():
        torch.testing.assert_close(value, two[name], rtol=0, atol=1e-5)

    # what is written is written once
    names = [{p.name for p in (tmp_path / n).iterdir()} for n in ("one", "two")]
    assert {n for n in names[0] if "tfevents" not in n} == {
        n for n in names[1] if "tfevents" not in n
    }
    assert sum("tfevents" in name for name in names[1]) == 1
    lines = read_records(tmp_path / "two" / "metrics.jsonl")
    assert [line["iteration"] for line in lines] == [0, 1]


def fails(config: Path, **how: Any) -> None:
    read = yaml.safe_load(config.read_text())
    reward = {
        "class_path": "modules.failing_ranks.Fails",
        "init_args": {"folder": str(config.parent)},
    }
    reward["init_args"] |= how
    read["model"]["init_args"]["rewards"] = [reward]
    config.write_text(yaml.safe_dump(read))


FAILURES: dict[str, dict[str, Any]] = {
    "an error": {},
    "an error while another is busy": {"busy": True},
    "killed": {"killed": True},
    "the first killed": {"rank": 0, "killed": True},
    "the first killed while another is busy": {"rank": 0, "killed": True, "busy": True},
}
CASES = [
    *[("lightning", failure) for failure in FAILURES if failure != "the first killed"],
    *[("torchrun", failure) for failure in ("an error", "killed")],
    *[("two torchruns", failure) for failure in [*FAILURES][:4]],
]


@pytest.mark.parametrize(("launcher", "failure"), CASES)
def test_a_failure_of_one_rank_ends_all(tmp_path: Path, policy: Path, launcher: str, failure: str):
    how, num_nodes = FAILURES[failure], 2 if launcher == "two torchruns" else 1
    config = grpo_config(tmp_path / "run", policy, over(num_nodes))
    fails(config, **how)
    if launcher == "lightning":
        done = fit_in_a_process(config, tmp_path)
        nodes = [(done.returncode, done.stdout + done.stderr)]
    else:
        nodes = torchrun(config, num_nodes)
    print(*[printed for _, printed in nodes], sep="\n")
    assert time.time() - (tmp_path / "failed").stat().st_mtime < 60
    for status, printed in nodes:
        assert status != 0
        if not how.get("killed"):
            assert "reward function 'fails' crashed with RuntimeError: no such unit" in printed
    if num_nodes > 1 and not how.get("killed"):
        assert sum("r1lit: error: rank 1 on " in printed for _, printed in nodes) == 1
    if num_nodes > 1 and how.get("killed"):
        assert sum("another rank has ended without a word" in printed for _, printed in nodes) == 1
    for rank in range(NUM_RANKS):
        pid = int((tmp_path / f"rank-{rank}").read_text())
        deadline = time.monotonic() + 10
        while is_running(pid):
            assert time.monotonic() < deadline, f"rank {rank} is left"
            time.sleep(0.1)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"
