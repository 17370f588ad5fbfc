"""Peak memory of an update, beside TRL's; of an adapter's and a shard's, beside that of all.

And the growth of cost: iteration time with response tokens, memory with vocabulary and with G.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from peft import LoraConfig

from benchmarks import peers, sharded_memory, sizes
from benchmarks.context import Context, shape_of
from benchmarks.results import Comparison, Entry, compare, of_numbers
from benchmarks.sizes import Size, even_work
from benchmarks.worker import Worker
from experiments.architectures import model_config

OURS = "benchmarks.ours:run_iterations"
BYTES_PER_PARAMETER = 16  # weight, gradient and two moments, each in float32
HUGE_PAGES = {"THP_MEM_ALLOC_ENABLE": "1"}  # 0.3 to 0.4 GB less on either side
MICRO_BATCH_TOKENS = 1280  # one row of r1lit's, prompt and response, as TRL's best is one row
TOKENS = (64, 256, 1024, 4096)
TINY_TOKENS = (8, 16, 32)


def static_mb(model: str) -> float:
    """Return what a model needs before any token: weights, gradients and AdamW's state, in MB."""
    return BYTES_PER_PARAMETER * shape_of(model).num_parameters / 2**20


def first_seconds(comparison: Comparison) -> dict[str, float]:
    """Return what the first counted step of either side took, as an entry says it."""
    return {
        "seconds_ours": round(comparison.ours[0]["seconds"], 1),
        "seconds_theirs": round(comparison.theirs[0]["seconds"], 1),
    }


def memory_05b(context: Context) -> list[Entry]:
    """16 responses of 1,024 tokens, 0.5B with its vocabulary of 151,936 tokens.

    Two figures: the whole peak, and what is above weights, gradients and AdamW's state.
    """
    work = sizes.update_05b(context.folder, tiny=context.tiny)
    settings: dict[str, Any] = {"work": work, "environment": HUGE_PAGES, "decode": False}
    own: dict[str, Any] = {"micro_batch_tokens": MICRO_BATCH_TOKENS}
    own["gradient_checkpointing"] = peers.TRL_MEMORY["gradient_checkpointing"]
    comparison = context.alternate(
        partial(Worker, OURS, **settings, **own),
        partial(Worker, "benchmarks.trl_side:run_iterations", **settings, **peers.TRL_MEMORY),
        most=1,
        alone=True,
    )
    static = static_mb("tiny-qwen" if context.tiny else "0.5B")
    for step in (*comparison.ours, *comparison.theirs):
        step["above_static_mb"] = step["peak_rss_mb"] - static
    figures = {
        "peak memory of an update, 16 x 1,024 tokens": "peak_rss_mb",
        "peak memory of an update above weights, gradients and AdamW's state": "above_static_mb",
    }
    return [
        compare(
            comparison,
            work=name,
            key=key,
            model="0.5B",
            peer="TRL GRPOTrainer",
            unit="MB",
            static_mb=round(static),
            settings=work.describe() | {"trl": peers.TRL_MEMORY, "r1lit": own},
            **first_seconds(comparison),
        )
        for name, key in figures.items()
    ]


def memory_lora(context: Context) -> list[Entry]:
    """8 responses of 256 tokens, 135M: an adapter of rank 8 on every linear layer, and all weights.

    Layers are checkpointed on both sides. Two figures: of the process, some 0.46 GB of which are
    libraries, and what is above those, which is what a GPU would hold.
    """
    work = sizes.update_135m(context.folder, tiny=context.tiny)
    settings: dict[str, Any] = {
        "work": work,
        "environment": HUGE_PAGES,
        "decode": False,
        "micro_batch_tokens": MICRO_BATCH_TOKENS,
        "gradient_checkpointing": True,
    }
    adapter = LoraConfig(r=8, target_modules="all-linear")
    comparison = context.alternate(
        partial(Worker, OURS, adapter=adapter, **settings),
        partial(Worker, OURS, **settings),
        most=1,
        alone=True,
    )
    size = "LoRA of rank 8, 8 x 256 tokens"
    figures = (
        (f"peak memory of an update by {size}, the libraries' too", "peak_rss_mb", None),
        (f"peak memory of an update by {size}", "above_imports_mb", 0.45),
    )
    return [
        compare(
            comparison,
            work=name,
            goal=goal,
            key=key,
            model="135M",
            peer="r1lit, all weights",
            unit="MB",
            settings=work.describe() | {"micro_batch_tokens": MICRO_BATCH_TOKENS},
            **first_seconds(comparison),
        )
        for name, key, goal in figures
    ]


def memory_fsdp2(context: Context) -> list[Entry]:
    """What each of two ranks holds under FSDP2 and under DDP; and a hand-over of sharded weights.

    The goal is half of weights, gradients and AdamW's state, and the largest group that is gathered
    at a time, by 5 % at most. The hand-over is rank 0's, in files as an engine reads them, beside
    that of all weights gathered at once.
    """
    work = sizes.update_135m(context.folder, tiny=context.tiny)
    num_tokens = 64 if context.tiny else 512
    sharded, whole = (
        sharded_memory.measure(kind, work.model, num_tokens) for kind in ("fsdp2", "ddp")
    )
    held = max(rank["held_mb"] for rank in whole)
    group = max(sharded[0]["layer_mb"], sharded[0]["outside_mb"])
    settings = {"ranks": sharded_memory.RANKS, "num_tokens": num_tokens, "each_rank": sharded}
    labels: dict[str, Any] = {"model": "135M", "unit": "MB", "settings": settings}
    return [
        of_numbers(
            [max(rank["peak_mb"] for rank in sharded)],
            [held],
            work="peak memory of weights, gradients and AdamW's state on each of two ranks",
            peer="r1lit under DDP",
            goal=round(1.05 * (1 / sharded_memory.RANKS + group / held), 3),
            **labels,
        ),
        of_numbers(
            [sharded[0]["sync_mb"]],
            [sharded[0]["gather_mb"]],
            work="peak memory of handing sharded weights to an engine",
            peer="all weights gathered at once",
            **labels,
        ),
    ]


def slope(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """Return the exponent of a power law through the points: 1 is linear.

    >>> round(slope([1, 10, 100], [3, 30, 300]), 3)
    1.0
    """
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0])


def growth_time(context: Context) -> list[Entry]:
    """Iteration time from 64 to 4,096 response tokens, 2 x 4 rows of the shipped base's shape."""
    tokens = TINY_TOKENS if context.tiny else TOKENS
    points = []
    for max_tokens in tokens:
        work = even_work("mini-long", context.folder, (2, 4, max_tokens))
        steps = context.steps(OURS, 2, work=work, **context.own)
        points.append(min(step["seconds"] for step in steps))
        context.show(f"{max_tokens} tokens: {points[-1]:.2f} s")
    # seconds per 1,000 response tokens of a row, at the shorter and at the longest
    first, last = (1000 * points[i] / tokens[i] for i in (0, -1))
    return [
        of_numbers(
            [last],
            [first],
            work=f"cost growth: iteration time a token, at {tokens[0]} and at {tokens[-1]} tokens",
            model="mini's shape",
            peer=f"r1lit itself, {tokens[0]} tokens",
            unit="s per 1,000 tokens of a row",
            slope=round(slope(tokens, points), 3),
            tokens=list(tokens),
            seconds=[round(point, 3) for point in points],
        )
    ]


def growth_memory(context: Context) -> list[Entry]:
    """Memory of an update above its static part, by vocabulary and by G."""
    small, large = ("tiny", "tiny-qwen") if context.tiny else ("mini-long-8k", "mini-long-152k")
    longer, shorter = (64, 32) if context.tiny else (512, 256)
    vocabularies = [f"{model_config(model).vocab_size:,}" for model in (small, large)]
    by_size = [_peak(context, model, (2, 4, longer)) for model in (small, large)]
    by_group = [_peak(context, small, (32 // group, group, shorter)) for group in (4, 32)]
    return [
        of_numbers(
            [last],
            [first],
            work=f"cost growth: update's memory above static, {what} {before} to {after}",
            model="mini's shape",
            peer=f"r1lit itself, {before}",
            unit="MB",
        )
        for what, (before, after), (first, last) in (
            ("vocabulary", vocabularies, by_size),
            ("G at 32 rows", ("4", "32"), by_group),
        )
    ]


def _peak(context: Context, model: str, size: Size) -> float:
    """Return what an update needs above a short one of the same process, and above its static."""
    work = even_work(model, context.folder, size)
    (step,) = context.steps(OURS, 1, work=work, decode=False, micro_batch_tokens=2048)
    peak, static = step["peak_rss_mb"], static_mb(model)
    context.show(f"{model}, G {work.group_size}: {peak:.0f} MB, of which {static:.0f} static")
    return peak - static
