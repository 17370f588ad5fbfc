"""r1lit beside its peers on this machine's CPU.

    python -m benchmarks.cpu                        # all but speedrun, sync, iteration-vllm
    python -m benchmarks.cpu --only sft rollout-mini
    python -m benchmarks.cpu --tiny                 # every piece at a tiny size, to try the harness

Results go to ``results/cpu.json`` and ``cpu.md`` after each piece of work, so that an interrupted
run keeps what it has; ``--only`` replaces the entries that it measures again.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from benchmarks import growth, peers, suite_grpo, suite_memory, suite_rollout, suite_sft, suite_vllm
from benchmarks.context import Context, measure_limits
from benchmarks.report import Report
from benchmarks.results import Entry
from benchmarks.speedrun import speedrun
from benchmarks.vllm_rollout import find_python
from benchmarks.worker import WorkerError

RESULTS = Path(__file__).parent / "results"
Measure = Callable[[Context], list[Entry]]


def run_speedrun(context: Context) -> list[Entry]:
    """Train both sides from the shipped base to the target; tiny runs stop after one iteration."""
    few = {"target": 0.0, "max_iterations": 1, "every": 1, "seeds": (0,)} if context.tiny else {}
    settings = peers.TRL_GRPO_MINI
    return [speedrun(peers.TRL_GRPO_MINI_PRECISION, settings, context.show, **few)]  # type: ignore[arg-type]


SUITE: dict[str, Measure] = {
    "grpo-mini": suite_grpo.grpo_mini,
    "grpo-135M": suite_grpo.grpo_135m,
    "rollout-mini": suite_rollout.rollout_mini,
    "rollout-135M": suite_rollout.rollout_135m,
    "vllm-mini": suite_rollout.vllm_mini,
    "vllm-135M": suite_rollout.vllm_135m,
    "sft": suite_sft.sft_135m,
    "memory": suite_memory.memory_05b,
    "memory-lora": suite_memory.memory_lora,
    "memory-fsdp2": suite_memory.memory_fsdp2,
    "growth-time": growth.growth_time,
    "growth-memory": growth.growth_memory,
}
NEEDS_VLLM = {"vllm-mini", "vllm-135M", "sync", "iteration-vllm"}
ON_REQUEST: dict[str, Measure] = {
    "speedrun": run_speedrun,
    "sync": suite_vllm.sync,
    "iteration-vllm": suite_vllm.iteration_vllm,
}


def main(arguments: list[str] | None = None) -> None:
    """Run the pieces asked for."""
    known = {**SUITE, **ON_REQUEST}
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", nargs="+", choices=list(known), default=list(SUITE))
    parser.add_argument("--repeats", type=int, default=3, help="pairs of counted steps, at most")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, to try the harness")
    parser.add_argument("--vllm-python", help="a Python with vLLM; without one, it is left out")
    parser.add_argument("--output", type=Path, help="the JSON to write")
    options = parser.parse_args(arguments)
    name = "cpu-tiny.json" if options.tiny else "cpu.json"
    report = Report(
        options.output or RESULTS / name,
        "r1lit beside its peers on a CPU",
        "python -m benchmarks.cpu " + " ".join(sys.argv[1:] if arguments is None else arguments),
        "cpu",
    )
    vllm = find_python(options.vllm_python)
    if vllm is None and {*options.only} & NEEDS_VLLM:
        say("vLLM is not installed: its rows are left out (make .venv-vllm installs it)")
    with tempfile.TemporaryDirectory(prefix="r1lit-bench-models-") as folder:
        context = Context(
            folder=Path(folder), repeats=options.repeats, tiny=options.tiny, vllm_python=vllm
        )
        failed = [name for name in options.only if not measure(name, known[name], context, report)]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}; the other results are in {report.path}")


def measure(name: str, function: Measure, context: Context, report: Report) -> bool:
    """Run a piece of work and write its entries; a side that died fails this piece alone.

    The machine's limits are measured right before it: what a shared machine has to give changes
    within minutes.
    """
    started = time.perf_counter()
    say(f"{name}: {(function.__doc__ or '').splitlines()[0]}")
    try:
        limits = measure_limits(context.device, context.tiny)
        say(f"  the machine's limits now: {limits}")
        entries = function(replace(context, limits=limits))
    except (WorkerError, ValueError) as error:
        say(f"{name} failed: {error}")
        return False
    report.add(entries, limits)
    for entry in entries:
        say(f"  {entry.work}, {entry.model}, {entry.peer}: {entry.ratio_median:.2f}")
    say(f"  took {time.perf_counter() - started:.0f} s")
    return True


def say(line: str) -> None:
    """Print a line of progress."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main()
