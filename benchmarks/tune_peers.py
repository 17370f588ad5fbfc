"""Finds the peers' best settings on this machine: each is tried, its time written down.

    python -m benchmarks.tune_peers [--only grpo-mini ...] [--tiny]

writes ``results/peers.json``: for each search the settings tried with seconds a step, or with what
went wrong. GRPO of the shipped base is searched with 2 of its 16 prompts, the update of 0.5B with 1
of 4. ``peers.py`` holds the fastest, for the update of 0.5B the leanest; change it when this says
otherwise.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks import sizes
from benchmarks.results import write_json
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
CONTINUOUS = {"use_transformers_continuous_batching": True}
SEARCHES: dict[str, tuple[str, Make, list[Variant]]] = {
    "grpo-mini": (
        GRPO,
        lambda folder, precision, tiny: sizes.grpo_mini(folder, precision, tiny, small=True),
        [
            *_grid("micro_rows", [4, 8, 16], precision="bf16-mixed"),
            *_grid("micro_rows", [4, 16], precision="fp32"),
            {"precision": "fp32", "micro_rows": 16, **STATIC},
            {"precision": "bf16-mixed", "micro_rows": 16, **STATIC},
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
            {"precision": "fp32", "packing_strategy": "bfd", "micro_rows": 1},
        ],
    ),
}


def try_variant(target: str, make: Make, variant: Variant, folder: Path, tiny: bool) -> Variant:
    """Return the variant with its seconds a step after a warm-up, or with its error."""
    settings = dict(variant)
    precision = settings.pop("precision", "bf16")
    work = make(folder, precision=precision, tiny=tiny)
    if tiny and "micro_rows" in settings:
        settings["micro_rows"] = min(settings["micro_rows"], 2)
    try:
        with Worker(target, work=work, timeout=600, **settings) as worker:
            worker.step()
            step = worker.step()
    except WorkerError as error:
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
    options = parser.parse_args(arguments)
    tried = json.loads(options.output.read_text()) if options.output.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        for name in options.only:
            target, make, variants = SEARCHES[name]
            tried[name] = []
            for variant in variants:
                result = try_variant(target, make, variant, Path(folder), options.tiny)
                tried[name].append(result)
                print(name, result, flush=True)
                write_json(options.output, tried)


if __name__ == "__main__":
    main()
