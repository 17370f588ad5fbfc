"""Checks that kills change nothing: ``python -m experiments.r1.kill_check runs/r1 runs/r1-killed``.

Makes the pipeline of a finished run again, in another folder: its runner is killed (``kill -9``) at
a random moment of each step and started again, until it ends. Then what every step wrote is
compared with the finished run's, byte by byte, and what the last one wrote, the table, in its
numbers too: a reward model's float32 rewards may differ in their last digits with the responses
beside them. Use the machine and the number of threads of the finished run: others add floats in
another order.
"""

from __future__ import annotations

import json
import math
import os
import random
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.launch import command_line, reported, start
from experiments.manifest import Manifest
from experiments.pipeline import Pipeline, read_pipeline

POLL_S = 0.1
TOLERANCE = 1e-6  # relative, between numbers of the last step's files
SHARES = (0.1, 0.9)  # of a step's seconds in the finished run; between them it is killed


def check(alone: Manifest, killed: Pipeline, rng: random.Random) -> bool:
    """Make ``killed``, killing it in every step; return whether the last wrote the same.

    Args:
        alone: the manifest of a finished run.
        killed: the same pipeline for a folder that is empty or was left by an earlier call.
        rng: draws the moments.

    Raises:
        ValueError: if the run ends with an error, or ``alone`` is not finished.
    """
    for step in killed.steps:
        state = alone.entries.get(step.name, {}).get("state", "missing")
        if state != "finished":
            raise ValueError(f"{alone.path}: step {step.name} is {state}; finish that run first")
    missed = {step.name for step in killed.steps}
    while (name := _start_and_kill(alone, killed, rng, missed)) is not None:
        missed.discard(name)
    for name in sorted(missed):
        print(f"{name}: ended before it could be killed")
    again = Manifest.load(killed)
    names = [step.name for step in killed.steps]
    same = {name: _written(alone, name) == _written(again, name) for name in names}
    others = [name for name, is_same in same.items() if not is_same]
    print(f"{sum(same.values())} of {len(same)} steps wrote the same bytes")
    if others:
        print(f"other bytes: {', '.join(others)} (an evaluation's report holds its seconds)")
    last = killed.steps[-1]
    return same[last.name] or all(
        _same_numbers(
            _read_json(path), _read_json(alone.pipeline.run / path.relative_to(killed.run))
        )
        for path in last.writes
    )


def _start_and_kill(
    alone: Manifest, killed: Pipeline, rng: random.Random, missed: set[str]
) -> str | None:
    """Run until a step of ``missed`` has been killed; return its name, or None at the end.

    The runner is killed alone, or with its process group: both happen to people.
    """
    command = [sys.executable, "-m", "experiments.r1", str(killed.path)]
    command += ["--seed", str(killed.seed), "--run", str(killed.run)]
    log = killed.run.with_name(f"{killed.run.name}.log")
    runner = start(command, log)
    seen, began, wait_s = "", 0.0, 0.0
    while runner.poll() is None:
        time.sleep(POLL_S)
        name = _running(killed)
        if name is None:
            continue
        if name != seen:
            seconds = alone.entries[name]["cost"]["seconds"]
            seen, began, wait_s = name, time.monotonic(), seconds * rng.uniform(*SHARES)
        if name in missed and time.monotonic() >= began + wait_s:
            (os.killpg if rng.random() < 0.5 else os.kill)(runner.pid, signal.SIGKILL)
            runner.wait()
            print(f"killed in {name}, {wait_s:.1f} s after it began", flush=True)
            return name
    if runner.returncode != 0:
        raise ValueError(f"{killed.run}: its runner ended with {runner.returncode}; see {log}")
    return None


def _running(pipeline: Pipeline) -> str | None:
    entries = Manifest.load(pipeline).entries
    return next((name for name, e in entries.items() if e["state"] == "running"), None)


def _written(manifest: Manifest, name: str) -> dict[str, str]:
    """Return the digests of what a step wrote, by path below the run's folder."""
    run, writes = manifest.pipeline.run, manifest.entries[name]["writes"]
    return {os.path.relpath(path, run): digest for path, digest in writes.items()}


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path}: it is not JSON ({error})") from error


def _same_numbers(one: object, other: object) -> bool:
    """Return whether two JSON values are the same but for the rounding of numbers."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same_numbers(one[k], other[k]) for k in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same_numbers, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=TOLERANCE)
    return one == other


@reported("kill_check")
def main(args: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status: 1 if the last step wrote else, 2 for bad input."""
    parser = command_line("experiments.r1.kill_check", __doc__)
    parser.add_argument("alone", type=Path, help="the folder of a finished run")
    parser.add_argument("killed", type=Path, help="the folder of the run to make and kill")
    parser.add_argument("--draw", type=int, default=0, help="seed of the moments, default 0")
    options = parser.parse_args(args)
    path = options.alone / "manifest.json"
    if not path.is_file():
        raise ValueError(f"alone: there is no {path}; name the folder of a finished run")
    content = _read_json(path)
    alone, killed = (
        read_pipeline(Path(content["pipeline"]), content["seed"], run)
        for run in (options.alone, options.killed)
    )
    is_same = check(Manifest.load(alone), killed, random.Random(options.draw))
    last = killed.steps[-1]
    print(f"{last.name}: {'the same' if is_same else 'NOT the same'} as in {options.alone}")
    return 0 if is_same else 1


if __name__ == "__main__":
    sys.exit(main())
