"""r1lit beside its peers on this machine's CPU.

    python -m benchmarks.cpu                        # all but what is measured on request
    python -m benchmarks.cpu --only sft rollout-mini
    python -m benchmarks.cpu --tiny                 # every piece at a tiny size, to try the harness

Results go to ``results/cpu.json`` and ``cpu.md`` after each piece of work, so that an interrupted
run keeps what it has; ``--only`` replaces the entries that it measures again. On request, as they
take long or need vLLM or a real model: speedrun, sync, iteration-vllm, grpo-real.
"""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks import suite_memory, suite_rollout, suite_training
from benchmarks.context import Piece, make_parser, run_pieces, say
from benchmarks.speedrun import speedrun
from benchmarks.vllm_rollout import find_python

SUITE: dict[str, Piece] = {
    "grpo-mini": suite_training.grpo_mini,
    "grpo-135M": suite_training.grpo_135m,
    **suite_rollout.ROLLOUTS,
    "sft": suite_training.sft_135m,
    "memory": suite_memory.memory_05b,
    "memory-lora": suite_memory.memory_lora,
    "memory-fsdp2": suite_memory.memory_fsdp2,
    "growth-time": suite_memory.growth_time,
    "growth-memory": suite_memory.growth_memory,
}
NEEDS_VLLM = {"vllm-mini", "vllm-135M", "sync", "iteration-vllm"}
ON_REQUEST: dict[str, Piece] = {
    "speedrun": speedrun,
    "sync": suite_rollout.sync,
    "iteration-vllm": suite_training.iteration_vllm,
    "grpo-real": suite_training.grpo_real,
}


def main(arguments: list[str] | None = None) -> None:
    """Run the pieces asked for."""
    known = {**SUITE, **ON_REQUEST}
    parser = make_parser(__doc__, list(known), repeats=3)
    parser.add_argument("--vllm-python", help="a Python with vLLM; without one, it is left out")
    parser.add_argument("--real-model", type=Path, help="the Hugging Face folder of grpo-real")
    options = parser.parse_args(arguments)
    names = options.only or list(SUITE)
    vllm = find_python(options.vllm_python)
    if vllm is None and {*names} & NEEDS_VLLM:
        say("vLLM is not installed: its rows are left out (make .venv-vllm installs it)")
    run_pieces(
        {name: known[name] for name in names},
        options,
        "cpu",
        "r1lit beside its peers on a CPU",
        arguments,
        vllm_python=vllm,
        real_model=options.real_model,
    )


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main()
