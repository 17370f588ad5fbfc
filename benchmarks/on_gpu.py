"""Everything that a GPU is asked, in one command that ends within ten minutes.

    python -m benchmarks.on_gpu                 # on a GPU
    python -m benchmarks.on_gpu --quick         # first: all short and at once, two minutes
    python -m benchmarks.on_gpu --tiny          # the same pieces, small, on a CPU

Each piece is a process with a time limit; one that fails or runs out of time leaves the others.
Those that time nothing run side by side. ``OUTPUT/on_gpu.json`` is written after each, logs lie
beside it, and a table is printed last.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import r1lit.cli.command
import r1lit.modules  # noqa: F401 - a package that is missing ends this before any piece
from benchmarks.worker import python_path
from experiments.real_model.fetch import FOLDER
from r1lit.files import replace_file

ROOT = Path(__file__).parents[1]
TESTS = [f"tests/{room}" for room in ("device", "modules", "policy/test_attention.py")]
ANY_NUMBER = [
    {"class_path": "r1lit.rewards.Accuracy", "init_args": {"weight": 0.0}},
    {"class_path": "experiments.real_model.rewards.EndsInNumber"},
]


@dataclass(frozen=True)
class Piece:
    """One process: the seconds it may take, its command, and whether others may run beside it."""

    limit: float
    command: list[str]
    beside: bool = True


def pieces(output: Path, size: str) -> dict[str, Piece]:
    """Return the pieces by name, at ``size`` full, quick or tiny."""
    full, tiny = size == "full", size == "tiny"
    fit = ["-m", "r1lit.cli", "fit", "-c"]
    some = ["-k", "llama or fixed_order"] if tiny else ["-n", "4"]
    auto = ["--trainer.accelerator=auto"]
    small = [
        "--data.rollout={prompts_per_iteration: 4, group_size: 4}",
        "--model.sampling.max_tokens=16",
        "--model.max_tokens_from=null",
        "--model.train_batch_size=16",
    ]
    aha = [*fit, "configs/mini/aha.yaml", *auto, *(small if tiny else [])]
    no_curve = ["--trainer.limit_val_batches=0", "--trainer.val_check_interval=1"]
    curve = ["--data.num_iterations=90"] if full else ["--data.num_iterations=2", *no_curve]
    traced = ["--data.num_iterations=3", *no_curve, "--profile", "2"]
    timed = {
        "full": ["--minutes", "2.5"],
        "quick": ["--repeats", "1", "--minutes", "0.5"],
        "tiny": ["--device", "cpu", "--tiny", "--repeats", "1"],
    }[size]
    found = {
        "tests": Piece(170, ["-m", "pytest", "-q", "-m", "gpu", *TESTS, *some]),
        "aha": Piece(215, [*aha, *curve, "--run", str(output / "aha")]),
        **(real(output, size) if FOLDER.is_dir() else {}),
        "profile": Piece(100, [*aha, *traced, "--run", str(output / "profile")]),
        "benchmark": Piece(
            270 if full else 110,
            ["-m", "benchmarks.gpu", *timed, "--output", str(output / "gpu.json")],
            beside=False,
        ),
    }
    if size == "quick":
        tiny_on_gpu = ["--tiny", "--repeats", "1", "--output", str(output / "gpu-tiny.json")]
        found["all of the benchmark"] = Piece(110, ["-m", "benchmarks.gpu", *tiny_on_gpu])
    return found


def real(output: Path, size: str) -> dict[str, Piece]:
    """Return the real model's runs: three seeds each of two rewards."""
    whole = ["-m", "r1lit.cli", "fit", "-c", "configs/real.yaml"]
    whole += ["-c", "experiments/real_model/one_gpu.yaml", "--trainer.accelerator=auto"]
    if size != "full":
        whole += ["--data.num_iterations=2", "--trainer.val_check_interval=2"]
        whole += ["--data.evaluation.num_samples=4"]
    if size == "tiny":
        whole += ["--data.rollout={prompts_per_iteration: 2, group_size: 4}"]
        whole += ["--model.train_batch_size=8"]
    found = {}
    for seed in (0, 1, 2) if size == "full" else (0,):
        for name, rewards in (("right-answer", None), ("any-number", ANY_NUMBER)):
            run = f"{name}-{seed}"
            paid = [f"--model.rewards={json.dumps(rewards)}"] if rewards else []
            own = ["--seed_everything", str(seed), "--run", str(output / run)]
            found[run] = Piece(215, [*whole, *paid, *own])
    return found


def run(output: Path, name: str, piece: Piece) -> dict[str, Any]:
    """Run a piece to its end or its limit; return how it ended, its seconds and its last line."""
    log, started = output / f"{name.replace(' ', '-')}.log", time.monotonic()
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, *piece.command],
            cwd=ROOT,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=os.environ | {"PYTHONPATH": python_path(), "TORCHINDUCTOR_COMPILE_THREADS": "2"},
            start_new_session=True,
        )
        try:
            code: int | str = process.wait(piece.limit)
        except subprocess.TimeoutExpired:
            code = "out of time"
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    with suppress(ProcessLookupError):  # what it left running would hold the caller's pipe open
        os.killpg(process.pid, signal.SIGKILL)
    lines = log.read_text(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    ended = "done" if code == 0 else str(code)
    seconds = round(time.monotonic() - started, 1)
    return {"piece": name, "ended": ended, "seconds": seconds, "last line": last[:100]}


def run_all(output: Path, chosen: dict[str, Piece], together: bool) -> list[dict[str, Any]]:
    """Run the pieces, first those that may run side by side; write each row when it is there."""
    rows: list[dict[str, Any]] = []
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"

    def note(row: dict[str, Any]) -> None:
        rows.append(row)
        found = {"device": device, "torch": torch.__version__, "pieces": rows}
        replace_file(output / "on_gpu.json", json.dumps(found, indent=2).encode())

    beside = {name: piece for name, piece in chosen.items() if piece.beside or together}
    at_once = len(beside) if torch.cuda.is_available() else 1
    with ThreadPoolExecutor(max(1, at_once)) as pool:
        running = [pool.submit(run, output, name, piece) for name, piece in beside.items()]
        for future in as_completed(running):
            note(future.result())
    for name, piece in chosen.items():
        if name not in beside:
            note(run(output, name, piece))
    print(f"{device}, torch {torch.__version__}; logs are in {output}")
    return rows


def main(arguments: list[str] | None = None) -> int:
    """Run the pieces; return how many did not end well."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tiny", action="store_true", help="small sizes, on whatever is there")
    parser.add_argument("--quick", action="store_true", help="short, all at once, on a GPU")
    parser.add_argument("--only", nargs="+", help="names of pieces")
    parser.add_argument("--output", type=Path, default=Path("runs/on_gpu"))
    options = parser.parse_args(arguments)
    if not options.tiny and not torch.cuda.is_available():
        parser.error("no CUDA device is at hand; --tiny tries the pieces without one")
    output = options.output.absolute()
    output.mkdir(parents=True, exist_ok=True)
    known = pieces(output, "tiny" if options.tiny else "quick" if options.quick else "full")
    if unknown := set(options.only or ()) - set(known):
        parser.error(f"--only: {min(unknown)!r} is none of {', '.join(known)}")
    chosen = {name: known[name] for name in known if name in (options.only or known)}
    rows = run_all(output, chosen, together=options.quick)
    for row in rows:
        print(f"{row['piece']:20} {row['ended']:12} {row['seconds']:7.1f} s  {row['last line']}")
    return sum(row["ended"] != "done" for row in rows)


if __name__ == "__main__":
    sys.exit(main())
