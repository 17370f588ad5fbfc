"""vLLM as a peer of rollouts, in a Python of its own.

That Python has the standard library and vLLM only, and imports this file too.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.work import Work
from benchmarks.worker import Gate, Worker

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
# of a server beside r1lit's trainer
SERVER_FLAGS: dict[str, Any] = {"enforce-eager": True, "max-model-len": 1024}
SERVER_ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "2",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}
TARGET = "benchmarks.vllm_rollout:run_rollout"
NUM_BATCHES = 8
SYSTEM = ("/usr/lib", "/usr/local/lib", "/opt")


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


def vllm_worker(python: str, work: Work, **settings: Any) -> Worker:
    """Return vLLM with the prompts of the first iterations.

    ``preload`` names libraries to load first, ``threads`` is ``VLLM_CPU_OMP_THREADS_BIND``; the
    rest is the target's.
    """
    from benchmarks.problems import prompt_loader
    from r1lit.policy import load_tokenizer

    loader = prompt_loader(work, load_tokenizer(work.model), NUM_BATCHES)
    prompts = [loader.batch(i).prompts for i in range(NUM_BATCHES)]
    environment, settings = split_environment(python, settings)
    return Worker(
        TARGET, python=python, environment=environment, work=work, prompts=prompts, **settings
    )


def split_environment(
    python: str, settings: dict[str, Any]
) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the environment of vLLM, and the settings that are not part of it.

    Raises:
        ValueError: if a library to load first is not installed.
    """
    settings, environment = dict(settings), dict(ENVIRONMENT)
    if libraries := settings.pop("preload", None):
        environment["LD_PRELOAD"] = ":".join(find_library(name, python) for name in libraries)
    if threads := settings.pop("threads", None):
        environment["VLLM_CPU_OMP_THREADS_BIND"] = threads
    return environment, settings


def find_library(name: str, python: str) -> str:
    """Return the file of a shared library, of a Python's packages or of the system.

    Raises:
        ValueError: if there is none.
    """
    roots = [Path(python).parents[1], *map(Path, SYSTEM)]
    for root in roots:
        for path in sorted(root.rglob(f"lib{name}*.so*")) if root.is_dir() else []:
            return str(path)
    raise ValueError(
        f"preload: no library {name!r} under {', '.join(map(str, roots))}; on Debian tcmalloc is"
        " libtcmalloc-minimal4, and iomp5 comes with vllm-cpu"
    )


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
        gate.start()
        outputs = model.generate(rows, parameters, use_tqdm=False)
        gate.stop()
        lengths = [len(output.outputs[0].token_ids) for output in outputs]
        assert lengths == list(work.forced), (lengths[:8], work.forced[:8])
        gate.report(lengths=lengths, prompt_lengths=[len(p) for p in batch])
