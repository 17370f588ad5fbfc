"""Pipelines small enough to run: copies of JSON files, and a real training with its evaluation."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml
from tiny import ROOT, grpo_config
from tiny_evaluation import evaluation_config


def copy(name: str, source: str, target: str, **more: Any) -> dict[str, Any]:
    """A step that copies a JSON file: a real command that takes no time."""
    return {
        "name": name,
        "stage": f"Stage {name}",
        "module": "json.tool",
        "arguments": [source, target],
        "reads": [source],
        "writes": [target],
        **more,
    }


def write(path: Path, steps: list[dict[str, Any]], **more: Any) -> Path:
    content = {"run": str(path.parent / "run"), "steps": steps, **more}
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def train_and_test(folder: Path, policy: Path) -> Path:
    """Write the pipeline of a tiny training and its evaluation, with their configs; return it."""
    run = folder / "run"
    change = {"trainer": {"val_check_interval": 3}}
    grpo = grpo_config(run / "zero", policy, change)
    inputs = folder / "inputs"
    inputs.mkdir()
    (inputs / "grpo.yaml").write_text(grpo.read_text())
    grpo.unlink()
    suite = {"model": {"init_args": {"dirpath": str(run / "eval/zero"), "suite": "sums"}}}
    test = evaluation_config(inputs, run / "zero/policy", suite, num_problems=8)
    steps = [
        {
            "name": "zero",
            "stage": "R1-Zero",
            "command": "fit",
            "config": [str(inputs / "grpo.yaml")],
            "reads": [str(policy)],
            "writes": [str(run / "zero/policy"), str(run / "zero/summary.json")],
        },
        {
            "name": "eval_zero",
            "stage": "R1-Zero",
            "command": "test",
            "config": [str(test)],
            "reads": [str(run / "zero/policy")],
            "writes": [str(run / "eval/zero")],
        },
    ]
    return write(folder / "pipeline.yaml", steps)


def environment() -> dict[str, str]:
    paths = [ROOT, ROOT / "tests", ROOT / "tests/evaluation"]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), "OMP_NUM_THREADS": "1"}


def command(pipeline: Path, *words: str) -> subprocess.Popen[bytes]:
    """Start the runner as a user would."""
    log = pipeline.with_name("runner.log").open("ab")
    line = [sys.executable, "-m", "experiments.r1", str(pipeline), *words]
    return subprocess.Popen(line, cwd=ROOT, env=environment(), stdout=log, stderr=log)


def kill_when(process: subprocess.Popen[bytes], happened: Any, seconds: float = 120) -> None:
    """Kill -9 the runner alone, once something has happened."""
    deadline = time.monotonic() + seconds
    while not happened():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def manifest(run: Path) -> dict[str, Any]:
    return {e["name"]: e for e in json.loads((run / "manifest.json").read_text())["steps"]}


def states(run: Path) -> dict[str, str]:
    return {name: entry["state"] for name, entry in manifest(run).items()}
