"""Kills vLLM's processes and the trainer at random moments, and compares with a run left alone.

    python -m experiments.vllm.faults runs/vllm-faults [--kills 20] [--iterations 60] [--draw 0]

Two runs of ``faults.yaml``: ``alone`` is not disturbed. Of ``disturbed`` a random process of the
served vLLM is killed (``kill -9``), or the trainer, which takes its server with it and is started
again with ``--ckpt_path last``, until there were enough kills and the run ends. It has passed if
it made each iteration once and all log-probs of its samples were the policy's. Iterations whose
numbers equal those of ``alone`` are counted: a response that another server or batch draws is the
same but for rounding, and the first that rounds to another token makes other updates from there on.

Needs a Python with vLLM (``make vllm``, or R1LIT_VLLM_PYTHON), and Linux.
"""

from __future__ import annotations

import math
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from experiments.launch import command_line, reported, start
from r1lit.files import Record, read_records

CONFIGS = (
    "configs/mini/r1_zero.yaml",
    "configs/hardware/vllm.yaml",
    "experiments/vllm/faults.yaml",
)
MISMATCH = "train/mismatch/max_abs"
COMPARED = ("train/num_tokens", "train/reward", "train/loss", "train/grad_norm")
LARGEST = 1e-3
ROUNDING = 1e-4  # relative
POLL_S = 0.1
HANG_S = 900
VICTIMS = ("server", "server", "server", "trainer")


class Run:
    """A training run in a folder, which can be killed and gone on with."""

    def __init__(self, folder: Path, num_iterations: int) -> None:
        self.folder = folder
        command = [sys.executable, "-m", "r1lit.cli", "fit"]
        for config in CONFIGS:
            command += ["-c", config]
        self._command = [*command, "--run", str(folder), "--ckpt_path", "last"]
        self._command += ["--data.num_iterations", str(num_iterations)]
        self.trainer: subprocess.Popen[bytes] | None = None

    def start(self) -> subprocess.Popen[bytes]:
        """Begin, or go on from the last checkpoint."""
        self.trainer = start(self._command, self.folder.with_name(f"{self.folder.name}.log"))
        return self.trainer

    def lines(self) -> list[Record]:
        """Return the numbers of the iterations made so far."""
        return [line for line in read_records(self.folder / "metrics.jsonl") if MISMATCH in line]

    def servers(self) -> list[int]:
        """Return the processes of the vLLM that the trainer has started."""
        assert self.trainer is not None
        for guard in _processes():
            words = _command_of(guard)
            if str(self.trainer.pid) in words and any(w.endswith("vllm/process.py") for w in words):
                children = _read(f"/proc/{guard}/task/{guard}/children").split()
                groups = [int(child) for child in children]
                return [pid for pid in _processes() if _group_of(pid) in groups]
        return []

    def check(self) -> None:
        """Raise a ValueError if it has ended with an error."""
        assert self.trainer is not None
        if self.trainer.returncode:
            log = self.folder.with_name(f"{self.folder.name}.log")
            raise ValueError(f"{self.folder}: it ended with {self.trainer.returncode}; see {log}")


def disturb(run: Run, num_kills: int, victims: Sequence[str], rng: random.Random) -> list[str]:
    """Make a run, and kill something after each iteration or two; return what was killed."""
    killed: list[str] = []
    trainer, made, wait_s = run.start(), 0, rng.uniform(0, 4)
    progress = time.monotonic()
    while trainer.poll() is None:
        time.sleep(POLL_S)
        now = len(run.lines())
        if time.monotonic() - progress > HANG_S:
            raise ValueError(f"{run.folder}: no iteration was made for {HANG_S} s after {now}")
        if now <= made:
            continue
        if len(killed) == num_kills:
            made, progress = now, time.monotonic()
            continue
        time.sleep(wait_s)
        kind = victims[len(killed)] if len(victims) == num_kills else rng.choice(victims)
        if kind == "trainer":
            trainer.kill()
            trainer.wait()
            trainer = run.start()
        else:
            servers = run.servers()
            if not servers:
                continue  # on its way back
            victim = rng.choice(servers)
            kind = f"server's process {' '.join(_command_of(victim))[-40:]}"
            os.kill(victim, signal.SIGKILL)
        killed.append(kind)
        made, progress, wait_s = len(run.lines()), time.monotonic(), rng.uniform(0, 4)
        print(f"{len(killed)}: killed the {kind} after {made} iterations", flush=True)
    run.check()
    return killed


def compare(alone: list[Record], disturbed: list[Record], num_iterations: int) -> list[str]:
    """Return what is wrong with the disturbed run; print how much of it equals the other."""
    wrong = []
    for name, lines in (("alone", alone), ("disturbed", disturbed)):
        if [line["iteration"] for line in lines] != list(range(num_iterations)):
            wrong.append(f"{name} has not made each iteration once")
        largest = max((float(line[MISMATCH]) for line in lines), default=math.nan)
        print(f"{name}: {len(lines)} iterations, log-probs differ by {largest:.2g} at most")
        if not largest <= LARGEST:
            wrong.append(f"{name} was drawn from other weights than the policy's")
    same = [_same(one, other) for one, other in zip(alone, disturbed, strict=False)]
    first = same.index(False) if False in same else len(same)
    print(f"{sum(same)} of {len(same)} iterations are equal, the first {first} of them in a row")
    return wrong


def _same(one: Record, other: Record) -> bool:
    keys = [key for key in COMPARED if key in one]
    return all(math.isclose(one[key], other[key], rel_tol=ROUNDING) for key in keys)


def _processes() -> list[int]:
    return [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]


def _read(path: str) -> str:
    try:
        return Path(path).read_bytes().decode(errors="replace")
    except OSError:  # it has ended
        return ""


def _command_of(pid: int) -> list[str]:
    return _read(f"/proc/{pid}/cmdline").rstrip("\0").split("\0")


def _group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:  # it has ended
        return -1


@reported("faults")
def main(args: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status: 1 if kills have changed the run, 2 if it failed."""
    parser = command_line("experiments.vllm.faults", __doc__)
    parser.add_argument("folder", type=Path, help="of both runs; a finished one is kept")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--iterations", type=int, default=60)
    parser.add_argument("--draw", type=int, default=0, help="seed of the moments")
    parser.add_argument(
        "--victims", default=",".join(VICTIMS), help="one is drawn, or all in order"
    )
    options = parser.parse_args(args)
    runs = [Run(options.folder / name, options.iterations) for name in ("alone", "disturbed")]
    alone, disturbed = runs
    try:
        if len(alone.lines()) < options.iterations:
            alone.start().wait()
            alone.check()
        started, rng = time.monotonic(), random.Random(options.draw)
        killed = disturb(disturbed, options.kills, options.victims.split(","), rng)
    finally:
        for run in runs:
            if run.trainer is not None and run.trainer.poll() is None:
                run.trainer.kill()
    print(f"{len(killed)} kills in {time.monotonic() - started:.0f} s")
    wrong = compare(alone.lines(), disturbed.lines(), options.iterations)
    if len(killed) < options.kills:
        wrong.append(f"the run ended after {len(killed)} of {options.kills} kills")
    for line in wrong:
        print(f"WRONG: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
