"""The growth of cost: iteration time with response tokens, memory with vocabulary and with G."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from benchmarks.context import Context, shape_of
from benchmarks.models import model_config
from benchmarks.results import Entry
from benchmarks.sizes import even_work
from benchmarks.update_memory import static_mb
from benchmarks.worker import Worker

TOKENS = (64, 256, 1024, 4096)
TINY_TOKENS = (8, 16, 32)
ITSELF = "r1lit itself"


def slope(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """Return the exponent of a power law through the points: 1 is linear.

    >>> round(slope([1, 10, 100], [3, 30, 300]), 3)
    1.0
    """
    x, y = [math.log(s) for s in sizes], [math.log(c) for c in costs]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    above = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return above / sum((a - mean_x) ** 2 for a in x)


def growth_time(context: Context) -> list[Entry]:
    """Iteration time from 64 to 4,096 response tokens, 2 x 4 rows of the shipped base's shape."""
    tokens = TINY_TOKENS if context.tiny else TOKENS
    points = []
    for max_tokens in tokens:
        work = even_work("mini-long", context.folder, prompts=2, group=4, max_tokens=max_tokens)
        with Worker("benchmarks.ours:run_iterations", work=work, **context.own) as worker:
            worker.step()
            steps = [worker.step() for _ in range(2)]
        points.append(min(step["seconds"] for step in steps))
        context.show(f"{max_tokens} tokens: {points[-1]:.2f} s")
    # seconds per 1,000 response tokens of a row, at the shorter and at the longest
    first, last = (1000 * points[i] / tokens[i] for i in (0, -1))
    return [
        Entry(
            work=f"cost growth: iteration time a token, at {tokens[0]} and at {tokens[-1]} tokens",
            model="mini's shape",
            peer=f"{ITSELF}, {tokens[0]} tokens",
            goal=None,
            ratio_median=first / last,
            ratio_min=first / last,
            ratio_max=first / last,
            ours=last,
            theirs=first,
            unit="s per 1,000 tokens of a row",
            extra={
                "slope": round(slope(tokens, points), 3),
                "tokens": list(tokens),
                "seconds": [round(point, 3) for point in points],
            },
        )
    ]


def growth_memory(context: Context) -> list[Entry]:
    """Memory of an update above its static part, by vocabulary and by G."""
    small, large = ("tiny", "tiny-qwen") if context.tiny else ("mini-long-8k", "mini-long-152k")
    shape: dict[str, int] = {"prompts": 2, "group": 4, "max_tokens": 64 if context.tiny else 512}
    by_size = [_peak(context, model, **shape) for model in (small, large)]
    width = 32 if context.tiny else 256
    by_group = [
        _peak(context, small, prompts=32 // group, group=group, max_tokens=width)
        for group in (4, 32)
    ]
    sizes = [model_config(model).vocab_size for model in (small, large)]
    return [
        _memory_entry("vocabulary", f"{sizes[0]:,}", f"{sizes[1]:,}", by_size),
        _memory_entry("G at 32 rows", "4", "32", by_group),
    ]


def _memory_entry(what: str, before: str, after: str, peaks: Sequence[float]) -> Entry:
    first, last = peaks
    return Entry(
        work=f"cost growth: update's memory above static, {what} {before} to {after}",
        model="mini's shape",
        peer=f"{ITSELF}, {before}",
        goal=None,
        ratio_median=last / first,
        ratio_min=last / first,
        ratio_max=last / first,
        ours=last,
        theirs=first,
        unit="MB",
    )


def _peak(context: Context, model: str, **shape: Any) -> float:
    """Return what an update needs above a short one of the same process, and above its static."""
    work = even_work(model, context.folder, **shape)
    run = "benchmarks.update_memory:run_ours"
    with Worker(run, work=work, micro_batch_tokens=2048) as worker:
        worker.step()
        peak = worker.step()["peak_rss_mb"]
    static = static_mb(shape_of(model).num_parameters)
    context.show(f"{model}, G {work.group_size}: {peak:.0f} MB, of which {static:.0f} static")
    return peak - static
