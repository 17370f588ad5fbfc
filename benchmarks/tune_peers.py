"""Finds the peers' best settings on this machine: each is tried, its time written down.

    python -m benchmarks.tune_peers [--only grpo-mini ...] [--vllm-python PYTHON] [--tiny]

writes ``results/peers.json``: for each search the settings tried with seconds a step, or with what
went wrong. Settings that the file has already are not tried again: take them out of it first. The
update of 0.5B is searched with 1 of its 4 prompts. ``peers.py`` holds the fastest, for the update
of 0.5B the leanest; change it when this says otherwise.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import sizes
from benchmarks.context import make_parser
from benchmarks.vllm_rollout import TARGET as VLLM
from benchmarks.vllm_rollout import find_python, vllm_worker
from benchmarks.work import SupervisedWork, Work
from benchmarks.worker import Worker, WorkerError
from r1lit.files import replace_json

FILE = Path(__file__).parent / "results" / "peers.json"
Make = Callable[..., Work | SupervisedWork]
Variant = dict[str, Any]

GRPO = "benchmarks.trl_side:run_iterations"
SFT = "benchmarks.trl_side:run_updates"
GENERATE = "benchmarks.hf_generate:run_rollout"
KEPT = ("seconds", "seconds_per_1000_tokens", "rollout_s", "grade_s", "update_s", "cpu_s")


def _grid(key: str, values: list[Any], **fixed: Any) -> list[Variant]:
    return [{**fixed, key: value} for value in values]


FP32 = {"precision": "fp32"}
MIXED = {"precision": "bf16-mixed"}
BF16 = {"precision": "bf16"}
STATIC = {"cache_implementation": "static"}
COMPILED = {"torch_compile": True}
LIBRARIES = ["tcmalloc", "iomp5"]
VLLM_VARIANTS: list[Variant] = [
    BF16,
    FP32,
    *_grid("preload", [["tcmalloc"], LIBRARIES], **BF16),
    *_grid("threads", ["0", "0-1", "nobind"], **BF16),
    *_grid("max_num_seqs", [16, 64, 256], **BF16),
    *_grid("max_num_batched_tokens", [2048, 16384], **BF16),
    {**BF16, "preload": LIBRARIES, "max_num_batched_tokens": 16384},
]
SEARCHES: dict[str, tuple[str, Make, list[Variant]]] = {
    "grpo-mini": (
        GRPO,
        sizes.grpo_mini,
        [
            *_grid("micro_rows", [16, 32, 64], **FP32, **STATIC),
            {**FP32, "micro_rows": 16},
            {**MIXED, "micro_rows": 16},
            {**MIXED, "micro_rows": 16, **STATIC},
            {**FP32, "micro_rows": 16, **STATIC, **COMPILED},
            {**FP32, "micro_rows": 16, "use_transformers_continuous_batching": True},
        ],
    ),
    "grpo-135M": (
        GRPO,
        sizes.grpo_135m,
        [
            {**FP32, "micro_rows": 4},
            {**FP32, "micro_rows": 4, **STATIC},
            *_grid("micro_rows", [2, 4, 8, 32], **MIXED),
            {**MIXED, "micro_rows": 4, **STATIC},
            {**MIXED, "micro_rows": 4, **COMPILED},
        ],
    ),
    "update-0.5B": (
        GRPO,
        partial(sizes.update_05b, prompts=1),
        [
            # 4 rows would take some 27 GB
            *_grid("micro_rows", [1, 2], **MIXED),
            {**MIXED, "micro_rows": 1, "gradient_checkpointing": True},
        ],
    ),
    "generate-mini": (
        GENERATE,
        sizes.rollout_mini,
        [FP32, BF16, MIXED, *_grid("precision", ["fp32", "bf16"], cache="static")],
    ),
    "generate-135M": (GENERATE, sizes.rollout_135m, [{}, {"cache": "static"}]),
    "sft-135M": (
        SFT,
        partial(sizes.sft_work, "135M"),
        [
            *_grid("micro_rows", [1, 2], **MIXED, packing_strategy="bfd"),
            {**MIXED, "packing_strategy": "wrapped", "micro_rows": 1},
            {**MIXED, "packing": False, "micro_rows": 1},
            {**MIXED, "packing": False, "padding_free": True, "micro_rows": 2},
            *_grid("packing", [False, True], **FP32, micro_rows=1),
            {**MIXED, "packing": False, "micro_rows": 1, **COMPILED},
            {**MIXED, "packing_strategy": "wrapped", "micro_rows": 1, **COMPILED},
        ],
    ),
    "vllm-mini": (VLLM, sizes.rollout_mini, VLLM_VARIANTS),
    "vllm-135M": (VLLM, sizes.rollout_135m, VLLM_VARIANTS),
}
FIXED: dict[str, dict[str, Any]] = {"update-0.5B": {"decode": False}}


def try_variant(
    name: str, variant: Variant, folder: Path, tiny: bool, python: str | None = None
) -> Variant:
    """Return the variant of a search with its seconds a step after a warm-up, or its error."""
    target, make, _ = SEARCHES[name]
    settings = {**FIXED.get(name, {}), **variant}
    work = make(folder, precision=settings.pop("precision", "bf16"), tiny=tiny)
    if tiny and "micro_rows" in settings:
        settings["micro_rows"] = min(settings["micro_rows"], 2)
    try:
        if target == VLLM:
            assert isinstance(work, Work)
            side = vllm_worker(python or sys.executable, work, **settings)
        else:
            side = Worker(target, work=work, **settings)
        with side as worker:
            worker.step()
            step = worker.step()
    except (WorkerError, ValueError) as error:
        return {**variant, "error": _cause(str(error))}
    parts = {key: round(step[key], 4) for key in KEPT if key in step}
    return {**variant, **parts, "peak_rss_mb": round(step["peak_rss_mb"])}


def _cause(text: str) -> str:
    """Return the line that names an exception, or the first."""
    lines = [line for line in text.splitlines() if re.match(r"\w*(Error|Exception)\b", line)]
    return (lines or text.splitlines())[0][:300]


def main(arguments: list[str] | None = None) -> None:
    """Try every variant of the searches asked for."""
    parser = make_parser(__doc__, list(SEARCHES), repeats=1)
    parser.add_argument("--vllm-python", help="a Python that has vLLM")
    options = parser.parse_args(arguments)
    path = options.output or FILE
    python = find_python(options.vllm_python)
    tried = json.loads(path.read_text()) if path.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        for name in options.only or SEARCHES:
            target, _, variants = SEARCHES[name]
            if target == VLLM and python is None:
                print(f"{name}: left out, since no Python with vLLM is found", flush=True)
                continue
            done = tried.setdefault(name, [])
            keys = {key for variant in variants for key in variant}
            before = [{key: old[key] for key in old if key in keys} for old in done]
            for variant in (variant for variant in variants if variant not in before):
                result = try_variant(name, variant, Path(folder), options.tiny, python)
                done.append(result)
                print(name, result, flush=True)
                replace_json(path, tried)


if __name__ == "__main__":
    main()
