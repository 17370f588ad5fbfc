"""Finds the peers' best settings on this machine: each is tried, its time written down.

    python -m benchmarks.tune_peers [--only grpo-mini ...] [--vllm-python PYTHON] [--tiny]

writes ``results/peers.json``: for each search the settings tried with seconds a step, or with what
went wrong. Settings that the file has already are not tried again: take them out of it first. The
update of 0.5B is searched with 1 of its 4 prompts. ``peers.py`` holds the fastest, for the update
of 0.5B the leanest; change it when this says otherwise.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks import sizes
from benchmarks.results import write_json
from benchmarks.vllm_rollout import find_python
from benchmarks.vllm_worker import TARGET as VLLM
from benchmarks.vllm_worker import vllm_worker
from benchmarks.work import SupervisedWork, Work
from benchmarks.worker import Worker, WorkerError

FILE = Path(__file__).parent / "results" / "peers.json"
Make = Callable[..., Work | SupervisedWork]
Variant = dict[str, Any]

GRPO = "benchmarks.trl_grpo:run_iterations"
SFT = "benchmarks.trl_sft:run_updates"
UPDATE = "benchmarks.update_memory:run_trl"
GENERATE = "benchmarks.hf_generate:run_rollout"


def _grid(key: str, values: list[Any], **fixed: Any) -> Iterator[Variant]:
    return ({**fixed, key: value} for value in values)


STATIC = {"cache_implementation": "static"}
COMPILED = {"torch_compile": True}
CONTINUOUS = {"use_transformers_continuous_batching": True}
VLLM_VARIANTS: list[Variant] = [
    {"precision": "bf16"},
    {"precision": "fp32"},
    *_grid("preload", [["tcmalloc"], ["tcmalloc", "iomp5"]], precision="bf16"),
    *_grid("threads", ["0", "0-1", "nobind"], precision="bf16"),
    *_grid("max_num_seqs", [16, 64, 256], precision="bf16"),
    *_grid("max_num_batched_tokens", [2048, 16384], precision="bf16"),
    {"precision": "bf16", "preload": ["tcmalloc", "iomp5"], "max_num_batched_tokens": 16384},
]
SEARCHES: dict[str, tuple[str, Make, list[Variant]]] = {
    "grpo-mini": (
        GRPO,
        sizes.grpo_mini,
        [
            *_grid("micro_rows", [16, 32, 64], precision="fp32", **STATIC),
            {"precision": "fp32", "micro_rows": 16},
            {"precision": "bf16-mixed", "micro_rows": 16},
            {"precision": "bf16-mixed", "micro_rows": 16, **STATIC},
            {"precision": "fp32", "micro_rows": 16, **STATIC, **COMPILED},
            {"precision": "fp32", "micro_rows": 16, **CONTINUOUS},
        ],
    ),
    "grpo-135M": (
        GRPO,
        sizes.grpo_135m,
        [
            {"precision": "fp32", "micro_rows": 4},
            {"precision": "fp32", "micro_rows": 4, **STATIC},
            *_grid("micro_rows", [2, 4, 8, 32], precision="bf16-mixed"),
            {"precision": "bf16-mixed", "micro_rows": 4, **STATIC},
            {"precision": "bf16-mixed", "micro_rows": 4, **COMPILED},
        ],
    ),
    "update-0.5B": (
        UPDATE,
        lambda folder, precision, tiny: sizes.update_05b(folder, precision, tiny, small=True),
        [
            # 4 rows would take some 27 GB
            *_grid("micro_rows", [1, 2], precision="bf16-mixed"),
            {"precision": "bf16-mixed", "micro_rows": 1, "gradient_checkpointing": True},
        ],
    ),
    "generate-mini": (
        GENERATE,
        sizes.rollout_mini,
        [
            *_grid("precision", ["fp32", "bf16", "bf16-mixed"]),
            *_grid("precision", ["fp32", "bf16"], cache="static"),
        ],
    ),
    "generate-135M": (GENERATE, sizes.rollout_135m, [{}, {"cache": "static"}]),
    "sft-135M": (
        SFT,
        lambda folder, precision, tiny: sizes.sft_work(
            "135M", folder, precision=precision, tiny=tiny
        ),
        [
            {"precision": "bf16-mixed", "packing_strategy": "bfd", "micro_rows": 1},
            {"precision": "bf16-mixed", "packing_strategy": "bfd", "micro_rows": 2},
            {"precision": "bf16-mixed", "packing_strategy": "wrapped", "micro_rows": 1},
            {"precision": "bf16-mixed", "packing": False, "micro_rows": 1},
            {"precision": "bf16-mixed", "packing": False, "padding_free": True, "micro_rows": 2},
            *_grid("packing", [False, True], precision="fp32", micro_rows=1),
            {"precision": "bf16-mixed", "packing": False, "micro_rows": 1, **COMPILED},
            {"precision": "bf16-mixed", "packing_strategy": "wrapped", "micro_rows": 1, **COMPILED},
        ],
    ),
    "vllm-mini": (VLLM, sizes.rollout_mini, VLLM_VARIANTS),
    "vllm-135M": (VLLM, sizes.rollout_135m, VLLM_VARIANTS),
}


def try_variant(
    target: str, make: Make, variant: Variant, folder: Path, tiny: bool, python: str | None = None
) -> Variant:
    """Return the variant with its seconds a step after a warm-up, or with its error."""
    settings = dict(variant)
    precision = settings.pop("precision", "bf16")
    work = make(folder, precision=precision, tiny=tiny)
    if tiny and "micro_rows" in settings:
        settings["micro_rows"] = min(settings["micro_rows"], 2)
    try:
        if target == VLLM:
            assert isinstance(work, Work)
            side = vllm_worker(python or sys.executable, work, **settings)
        else:
            side = Worker(target, work=work, timeout=1800, **settings)
        with side as worker:
            worker.step()
            step = worker.step()
    except (WorkerError, ValueError) as error:
        return {**variant, "error": _cause(str(error))}
    parts = {name: round(value, 3) for name, value in step.items() if name.endswith("_s")}
    result = {**variant, "seconds": round(step["seconds"], 3), **parts}
    if "num_tokens" in step:
        result["seconds_per_1000_tokens"] = round(1000 * step["seconds"] / step["num_tokens"], 4)
    return {**result, "peak_rss_mb": round(step["peak_rss_mb"])}


def _cause(text: str) -> str:
    """Return the line that names an exception, or the first."""
    lines = [line for line in text.splitlines() if re.match(r"\w*(Error|Exception)\b", line)]
    return (lines or text.splitlines())[0][:300]


def main(arguments: list[str] | None = None) -> None:
    """Try every variant of the searches asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", choices=list(SEARCHES), default=list(SEARCHES))
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, to try the script")
    parser.add_argument("--output", type=Path, default=FILE)
    parser.add_argument("--vllm-python", help="a Python that has vLLM")
    options = parser.parse_args(arguments)
    python = find_python(options.vllm_python)
    tried = json.loads(options.output.read_text()) if options.output.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        for name in options.only:
            target, make, variants = SEARCHES[name]
            if target == VLLM and python is None:
                print(f"{name}: left out, since no Python with vLLM is found", flush=True)
                continue
            done = tried.setdefault(name, [])
            keys = {key for variant in variants for key in variant}
            before = [{key: old[key] for key in old if key in keys} for old in done]
            for variant in (variant for variant in variants if variant not in before):
                where = (Path(folder), options.tiny)
                result = try_variant(target, make, variant, *where, python=python)
                done.append(result)
                print(name, result, flush=True)
                write_json(options.output, tried)


if __name__ == "__main__":
    main()
