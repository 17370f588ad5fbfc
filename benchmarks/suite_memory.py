"""Peak memory of an update, beside TRL's; of an adapter's and a shard's, beside that of all."""

from __future__ import annotations

from typing import Any

from peft import LoraConfig

from benchmarks import peers, sharded_memory, sizes
from benchmarks.context import Context, shape_of
from benchmarks.results import Entry, compare
from benchmarks.timing import Comparison, alternate_alone
from benchmarks.update_memory import static_mb
from benchmarks.worker import Worker

HUGE_PAGES = {"THP_MEM_ALLOC_ENABLE": "1"}  # 0.3 to 0.4 GB less on either side
MICRO_BATCH_TOKENS = 1280  # one row of r1lit's, prompt and response, as TRL's best is one row


def memory_05b(context: Context) -> list[Entry]:
    """16 responses of 1,024 tokens, 0.5B with its vocabulary of 151,936 tokens.

    Two figures: the whole peak, and what is above weights, gradients and AdamW's state.
    """
    work = sizes.update_05b(context.folder, tiny=context.tiny)
    settings: dict[str, Any] = {"work": work, "environment": HUGE_PAGES}
    own: dict[str, Any] = {"micro_batch_tokens": MICRO_BATCH_TOKENS}
    own |= {k: v for k, v in peers.TRL_MEMORY.items() if k == "gradient_checkpointing"}

    def ours(**more: Any) -> Worker:
        return Worker("benchmarks.update_memory:run_ours", **settings, **own, **more)

    comparison = alternate_alone(
        ours,
        lambda: Worker("benchmarks.update_memory:run_trl", **settings, **peers.TRL_MEMORY),
        repeats=1,
        show=context.show,
    )
    model = "tiny-qwen" if context.tiny else "0.5B"
    static = static_mb(shape_of(model).num_parameters)
    for step in (*comparison.ours, *comparison.theirs):
        step["above_static_mb"] = step["peak_rss_mb"] - static

    def entry(work_name: str, key: str) -> Entry:
        return compare(
            comparison,
            work=work_name,
            goal=None,
            key=key,
            model="0.5B",
            peer="TRL GRPOTrainer",
            unit="MB",
            static_mb=round(static),
            seconds_ours=round(comparison.ours[0]["seconds"], 1),
            seconds_theirs=round(comparison.theirs[0]["seconds"], 1),
            settings=work.describe() | {"trl": peers.TRL_MEMORY, "r1lit": own},
        )

    return [
        entry("peak memory of an update, 16 x 1,024 tokens", "peak_rss_mb"),
        entry(
            "peak memory of an update above weights, gradients and AdamW's state",
            "above_static_mb",
        ),
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
        "micro_batch_tokens": MICRO_BATCH_TOKENS,
        "gradient_checkpointing": True,
    }
    adapter = LoraConfig(r=8, target_modules="all-linear")
    comparison = alternate_alone(
        lambda: Worker("benchmarks.update_memory:run_ours", adapter=adapter, **settings),
        lambda: Worker("benchmarks.update_memory:run_ours", **settings),
        repeats=1,
        show=context.show,
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
            seconds_ours=round(comparison.ours[0]["seconds"], 1),
            seconds_theirs=round(comparison.theirs[0]["seconds"], 1),
            settings=work.describe() | {"micro_batch_tokens": MICRO_BATCH_TOKENS},
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
        sharded_memory.measure(kind, work.model, context.folder, num_tokens)
        for kind in ("fsdp2", "ddp")
    )
    held = max(rank["held_mb"] for rank in whole)
    group = max(sharded[0]["layer_mb"], sharded[0]["outside_mb"])
    settings = {"ranks": sharded_memory.RANKS, "num_tokens": num_tokens, "each_rank": sharded}
    labels: dict[str, Any] = {"model": "135M", "unit": "MB", "settings": settings}
    most = {"peak_mb": max(rank["peak_mb"] for rank in sharded)}
    return [
        compare(
            Comparison(ours=[most], theirs=[{"peak_mb": held}]),
            work="peak memory of weights, gradients and AdamW's state on each of two ranks",
            peer="r1lit under DDP",
            goal=round(1.05 * (1 / sharded_memory.RANKS + group / held), 3),
            key="peak_mb",
            **labels,
        ),
        compare(
            Comparison(
                ours=[{"mb": sharded[0]["sync_mb"]}], theirs=[{"mb": sharded[0]["gather_mb"]}]
            ),
            work="peak memory of handing sharded weights to an engine",
            peer="all weights gathered at once",
            goal=None,
            key="mb",
            **labels,
        ),
    ]
