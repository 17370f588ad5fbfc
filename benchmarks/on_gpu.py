"""Everything that a GPU is asked, in one command that ends within ten minutes.

    python -m benchmarks.on_gpu                 # on a GPU
    python -m benchmarks.on_gpu --tiny          # the same pieces, small, on a CPU

Each piece is a process with a time limit; one that fails or runs out of time leaves the others.
``OUTPUT/on_gpu.json`` is written after each, logs lie beside it, and a table is printed last.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from r1lit.files import replace_file

ROOT = Path(__file__).parents[1]


def pieces(output: Path, tiny: bool) -> dict[str, tuple[int, list[str]]]:
    """Return, by name, the seconds that each piece may take and its command."""
    few = ["-k", "llama or fixed_order"] if tiny else []
    aha = ["-m", "r1lit.cli", "fit", "-c", "configs/mini/aha.yaml"]
    quiet = ["--trainer.limit_val_batches=0", "--trainer.accelerator=auto"]
    quiet += ["--trainer.val_check_interval=1"]
    if tiny:
        quiet += ["--data.rollout={prompts_per_iteration: 4, group_size: 4}"]
        quiet += ["--model.sampling.max_tokens=16", "--model.max_tokens_from=null"]
        quiet += ["--model.train_batch_size=16"]
    curve = [f"--data.num_iterations={2 if tiny else 90}", "--run", str(output / "aha")]
    traced = ["--data.num_iterations=3", "--run", str(output / "profile"), "--profile", "2"]
    sizes = ["--device", "cpu", "--tiny", "--repeats", "1"] if tiny else ["--minutes", "3.5"]
    benchmark = ["-m", "benchmarks.gpu", *sizes, "--output", str(output / "gpu.json")]
    return {
        "tests": (160, ["-m", "pytest", "-q", "-m", "gpu", "tests/device", "tests/modules", *few]),
        "aha": (120, [*aha, *quiet, *curve]),
        "benchmark": (230, benchmark),
        "profile": (80, [*aha, *quiet, *traced]),
    }


def run(name: str, limit: float, command: list[str], output: Path) -> dict[str, Any]:
    """Run a piece to its end or its limit; return how it ended, its seconds and its last line."""
    log, started = output / f"{name}.log", time.monotonic()
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=ROOT,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            start_new_session=True,
        )
        try:
            code: int | str = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = "out of time"
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    lines = log.read_text(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    ended = "done" if code == 0 else str(code)
    seconds = round(time.monotonic() - started, 1)
    return {"piece": name, "ended": ended, "seconds": seconds, "last line": last[:100]}


def main(arguments: list[str] | None = None) -> int:
    """Run the pieces; return how many did not end well."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tiny", action="store_true", help="small sizes, on whatever is there")
    parser.add_argument("--only", nargs="+", help="names of pieces")
    parser.add_argument("--output", type=Path, default=Path("runs/on_gpu"))
    options = parser.parse_args(arguments)
    if not options.tiny and not torch.cuda.is_available():
        parser.error("no CUDA device is at hand; --tiny tries the pieces without one")
    output = options.output.absolute()
    output.mkdir(parents=True, exist_ok=True)
    known = pieces(output, options.tiny)
    if unknown := set(options.only or ()) - set(known):
        parser.error(f"--only: {min(unknown)!r} is none of {', '.join(known)}")
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    rows: list[dict[str, Any]] = []
    for name, (limit, command) in known.items():
        if options.only is None or name in options.only:
            rows.append(run(name, limit, command, output))
            found = {"device": device, "torch": torch.__version__, "pieces": rows}
            replace_file(output / "on_gpu.json", json.dumps(found, indent=2).encode())
    print(f"{device}, torch {torch.__version__}; logs are in {output}")
    for row in rows:
        print(f"{row['piece']:10} {row['ended']:12} {row['seconds']:7.1f} s  {row['last line']}")
    return sum(row["ended"] != "done" for row in rows)


if __name__ == "__main__":
    sys.exit(main())
