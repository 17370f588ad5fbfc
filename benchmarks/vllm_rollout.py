"""vLLM as a peer of rollouts; runs in a Python of its own (standard library and vLLM only)."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.work import Work
from benchmarks.worker import Gate

OWN = Path(__file__).parents[1] / ".venv-vllm" / "bin" / "python"
VARIABLE = "R1LIT_VLLM_PYTHON"
DTYPES = {"fp32": "float32", "bf16": "bfloat16", "bf16-mixed": "bfloat16"}
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "4",
    "VLLM_CPU_OMP_THREADS_BIND": "auto",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}


def find_python(given: str | None) -> str | None:
    """Return a Python that has vLLM: the one given, that of R1LIT_VLLM_PYTHON, or make's own.

    Raises:
        ValueError: if the one given or named by the variable has none.
    """
    named = given or os.environ.get(VARIABLE)
    python = named or str(OWN)
    if "/" in python:  # a path, from here; a name alone is looked up
        python = str(Path(python).absolute())
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec('vllm') is None)"
    try:
        found = subprocess.run([python, "-c", code], capture_output=True, cwd="/").returncode == 0
    except OSError:
        found = False
    if named and not found:
        raise ValueError(f"--vllm-python: {named!r} is no Python with vLLM installed")
    return python if found else None


def run_rollout(
    gate: Gate, *, work: Work, prompts: Sequence[Sequence[Sequence[int]]], **options: Any
) -> None:
    """Draw responses; ``prompts`` holds token ids for iterations that repeat."""
    assert importlib.util.find_spec("vllm") is not None
    from vllm import LLM, SamplingParams

    longest = max(len(prompt) for batch in prompts for prompt in batch)
    model = LLM(
        model=work.model,
        dtype=DTYPES[work.precision],
        max_model_len=longest + work.max_tokens,
        seed=work.seed,
        **{
            "max_num_seqs": work.num_rows,
            "enable_prefix_caching": True,
            "skip_tokenizer_init": True,
            "disable_log_stats": True,
            **options,
        },
    )
    parameters = [
        SamplingParams(
            temperature=1.0, max_tokens=length, min_tokens=length, ignore_eos=True, detokenize=False
        )
        for length in work.forced
    ]
    for iteration, _ in enumerate(gate):
        batch = prompts[iteration % len(prompts)]
        rows = [
            {"prompt_token_ids": list(prompt)} for prompt in batch for _ in range(work.group_size)
        ]
        started = time.perf_counter()
        outputs = model.generate(rows, parameters, use_tqdm=False)
        seconds = time.perf_counter() - started
        lengths = [len(output.outputs[0].token_ids) for output in outputs]
        assert lengths == list(work.forced), (lengths[:8], work.forced[:8])
        gate.report(seconds=seconds, lengths=lengths, prompt_lengths=[len(p) for p in batch])
