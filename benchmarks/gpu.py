"""r1lit beside TRL on one CUDA device: 0.5B to 1.5B architectures, random weights, bfloat16.

    python -m benchmarks.gpu                         # within eight minutes
    python -m benchmarks.gpu --device cpu --tiny     # the same code at tiny sizes, to try it

GRPO iteration (TRL generates with Hugging Face ``generate`` or with continuous batching) and packed
supervised training, with model-FLOP utilisation, share of the decoding roofline and peak device
memory, and beside the rates that others publish. Results go to ``results/gpu.json`` and ``gpu.md``
after each piece of work; a time limit leaves out what is left.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks import sizes
from benchmarks.context import Context, shape_of
from benchmarks.cpu import RESULTS, measure, say
from benchmarks.flops import training_flops
from benchmarks.report import Report
from benchmarks.results import Entry, compare
from benchmarks.suite_grpo import parts, prompt_lengths
from benchmarks.timing import Comparison
from benchmarks.work import Precision
from benchmarks.worker import Worker

ORDER = (
    ("grpo", "1.5B"), ("sft", "0.6B"), ("batching", "0.5B"), ("grpo", "0.5B"), ("sft", "1.5B")
)  # fmt: skip
MODELS = tuple(sorted({model for _, model in ORDER}))
PRECISION: Precision = "bf16"
OWN: dict[str, Any] = {"micro_batch_tokens": 16384}
TRL_GRPO: dict[str, Any] = {"micro_rows": 16}
TRL_SFT: dict[str, Any] = {"micro_rows": 1, "packing_strategy": "bfd"}
BATCHING: dict[str, Any] = {"use_transformers_continuous_batching": True}
# tokens a second of an update on one H100, as published: prime-rl's SFT at rows of 16,384 tokens
# (MFU 17 %) and verl's GRPO update (MFU 12.6 %)
PUBLISHED = {
    ("SFT", "0.6B"): ("prime-rl, published", 26_000),
    ("GRPO update", "1.5B"): ("verl, published", 10_900),
}


def grpo(context: Context, model: str, **peer: Any) -> list[Entry]:
    """GRPO iteration: 16 x 8 responses of up to 256 tokens, one update."""
    work = sizes.grpo_work(
        model,
        context.folder,
        prompts=16,
        group=8,
        max_tokens=256,
        precision=PRECISION,
        tiny=context.tiny,
        device=context.device,
    )
    settings = {"micro_rows": min(TRL_GRPO["micro_rows"], work.train_batch_size), **peer}
    with (
        Worker("benchmarks.ours:run_iterations", work=work, **OWN, **context.own) as ours,
        Worker("benchmarks.trl_grpo:run_iterations", work=work, **settings) as theirs,
    ):
        comparison = context.alternate(ours, theirs)
    generation = "continuous batching" if peer else "HF generate"
    labels: dict[str, Any] = {"model": model, "peer": f"TRL GRPOTrainer, {generation}", "goal": 1.0}
    more = parts(comparison, work, settings)
    described = {"settings": more["settings"]}
    whole = compare(
        comparison, work="GRPO iteration, 16 x 8, up to 256 tokens", unit="s", **labels, **more
    )
    rollout, update = (
        compare(comparison, work=name, unit="s", key=key, **labels, **described)
        for name, key in (("its rollout", "rollout_s"), ("its update", "update_s"))
    )
    name = "tiny" if context.tiny else model
    prompts = prompt_lengths(work)
    for side, seconds in (("ours", rollout.ours), ("theirs", rollout.theirs)):
        rollout.extra[f"roofline_{side}"] = context.roofline(name, work, prompts, seconds)
    for side, seconds in (("ours", update.ours), ("theirs", update.theirs)):
        update.extra[f"mfu_{side}"] = context.mfu(name, work, prompts, seconds)
    tokens = sum(work.forced) + sum(prompts)
    entries = [whole, rollout, update, *peak(comparison, "GRPO iteration", labels)]
    return entries + published(context, "GRPO update", model, 1000 * update.ours / tokens)


def batching(context: Context, model: str) -> list[Entry]:
    """The same, where TRL generates with transformers' continuous batching."""
    return grpo(context, model, **BATCHING)


def published(context: Context, work: str, model: str, seconds: float) -> list[Entry]:
    """Return our ``seconds`` per 1,000 tokens beside a published rate, where there is one."""
    if context.tiny or (work, model) not in PUBLISHED:
        return []
    peer, rate = PUBLISHED[work, model]
    ratio = 1000 / rate / seconds
    return [
        Entry(
            work=f"{work}, beside a published rate", model=model, peer=peer, goal=1.0,
            ratio_median=ratio, ratio_min=ratio, ratio_max=ratio, ours=seconds,
            theirs=1000 / rate, unit="s per 1,000 tokens",
        )
    ]  # fmt: skip


def sft(context: Context, model: str) -> list[Entry]:
    """Supervised training: the same documents in every update of both sides."""
    work = sizes.sft_work(
        model, context.folder, num_documents=24, max_seq_len=16_384, precision=PRECISION,
        tiny=context.tiny, device=context.device,
    )  # fmt: skip
    with (
        Worker("benchmarks.ours_sft:run_updates", work=work, **OWN) as ours,
        Worker("benchmarks.trl_sft:run_updates", work=work, **TRL_SFT) as theirs,
    ):
        comparison = context.alternate(ours, theirs)
    labels: dict[str, Any] = {"model": model, "peer": "TRL SFTTrainer", "goal": 1.0}
    entry = compare(
        comparison,
        work="SFT, the same 24 documents an update, lengths of R1's chains, rows of 16,384 tokens",
        unit="s per 1,000 tokens",
        key="seconds_per_1000_tokens",
        **labels,
        settings=work.describe() | {"trl": TRL_SFT},
    )
    shape = shape_of("tiny" if context.tiny else model)
    per_1000 = 1000 * training_flops(shape, work.lengths) / sum(work.lengths)
    for side, seconds in (("ours", entry.ours), ("theirs", entry.theirs)):
        entry.extra[f"mfu_{side}"] = round(
            per_1000 / seconds / context.flops_per_second(PRECISION), 4
        )
        entry.extra[f"tokens_per_s_{side}"] = round(1000 / seconds, 1)
    entries = [entry, *peak(comparison, "SFT", labels)]
    return entries + published(context, "SFT", model, entry.ours)


def peak(comparison: Comparison, of: str, labels: dict[str, Any]) -> list[Entry]:
    """Return the peak memory of both sides: the device's, or the process's where there is none."""
    key = "peak_device_mb" if "peak_device_mb" in comparison.ours[0] else "peak_rss_mb"
    return [compare(comparison, work=f"peak memory, {of}", unit="MB", key=key, **labels)]


SUITE: dict[str, Callable[[Context, str], list[Entry]]] = {
    "grpo": grpo, "batching": batching, "sft": sft
}  # fmt: skip


def main(arguments: list[str] | None = None) -> None:
    """Run the pieces asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--only", nargs="+", choices=list(SUITE), default=list(SUITE))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, to try the harness")
    parser.add_argument("--minutes", type=float, default=8, help="start no new piece after these")
    parser.add_argument("--output", type=Path, help="the JSON to write")
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device: no CUDA device is at hand; --device cpu --tiny tries the harness")
    started = time.perf_counter()
    report = Report(
        options.output or RESULTS / ("gpu-tiny.json" if options.tiny else "gpu.json"),
        "r1lit beside TRL on one GPU",
        "python -m benchmarks.gpu " + " ".join(sys.argv[1:] if arguments is None else arguments),
        options.device,
    )
    failed = []
    with tempfile.TemporaryDirectory(prefix="r1lit-bench-models-") as folder:
        context = Context(
            folder=Path(folder),
            repeats=options.repeats,
            tiny=options.tiny,
            device=options.device,
        )
        wanted = [(n, m) for n, m in ORDER if n in options.only and m in options.models]
        for name, model in wanted:
            if time.perf_counter() - started > 60 * options.minutes:
                say(f"{name} {model} is left out: {options.minutes:g} minutes are over")
                continue
            piece = SUITE[name]

            def run(context: Context, piece=piece, model=model) -> list[Entry]:
                return piece(context, model)

            run.__doc__ = f"{model}, {piece.__doc__}"
            if not measure(name, run, context, report):
                failed.append(f"{name} {model}")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}; the other results are in {report.path}")


if __name__ == "__main__":
    main()
