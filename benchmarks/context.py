"""The context of a benchmark run that every piece of work reads."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from benchmarks.flops import Shape, decode_seconds, update_flops
from benchmarks.models import model_config
from benchmarks.timing import Comparison, Side, alternate
from benchmarks.work import Precision, Work
from benchmarks.worker import Worker


@dataclass(frozen=True, kw_only=True)
class Context:
    """One run of the benchmarks: its folder of models, how often, how large, on what.

    ``limits`` holds the machine's own rates as ``limits.py`` reports them, none before a piece of
    work is about to begin.
    """

    folder: Path
    repeats: int = 3
    tiny: bool = False
    device: str = "cpu"
    vllm_python: str | None = None
    limits: dict[str, float] = field(default_factory=dict)

    @property
    def own(self) -> dict[str, Any]:
        """Settings of r1lit's side: tiny work is not worth compiling for."""
        return {"compile": False} if self.tiny else {}

    def show(self, line: str) -> None:
        """Print a line of progress."""
        print(f"  {line}", file=sys.stderr, flush=True)

    def alternate(
        self, ours: Side, theirs: Side, *, most: int | None = None, warmups: int = 1
    ) -> Comparison:
        """Make steps by turns, ``most`` pairs at most."""
        repeats = self.repeats if most is None else min(self.repeats, most)
        return alternate(ours, theirs, repeats=repeats, warmups=warmups, show=self.show)

    def flops_per_second(self, precision: Precision) -> float:
        """Return the measured rate of matrix products in the arithmetic's precision."""
        return 1e9 * self.limits["fp32_gflops" if precision == "fp32" else "bf16_gflops"]

    def mfu(self, model: str, work: Work, prompt_lengths: Sequence[int], seconds: float) -> float:
        """Return the model-FLOP utilisation of an iteration's updates."""
        flops = update_flops(shape_of(model), prompt_lengths, work.forced)
        return round(flops / seconds / self.flops_per_second(work.precision), 4)

    def roofline(
        self, model: str, work: Work, prompt_lengths: Sequence[int], seconds: float
    ) -> float:
        """Return the share of the roofline that a rollout reaches."""
        least = decode_seconds(
            shape_of(model),
            prompt_lengths,
            work.forced,
            bytes_per_number=4 if work.precision == "fp32" else 2,
            bytes_per_second=1e9 * self.limits["read_gb_per_s"],
            flops_per_second=self.flops_per_second(work.precision),
        )
        return round(least / seconds, 4)


@lru_cache
def shape_of(model: str) -> Shape:
    """Return a model's shape by its name."""
    return Shape.of(model_config(model))


def measure_limits(device: str, tiny: bool) -> dict[str, float]:
    """Measure the machine's limits in a process of their own."""
    with Worker("benchmarks.limits:run", device=device, tiny=tiny) as worker:
        limits = worker.step()
    return {name: round(limits[name], 2) for name in limits if name.endswith(("flops", "per_s"))}
