"""The machine's own limits, measured in the same run: matrix products and memory bandwidth."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from benchmarks.worker import Gate, Stopwatch

SIZES = (1024, 2048, 4096)
REPEATS = 10  # a shared machine is now and then slow for a second


def matmul_gflops(dtype: torch.dtype, device: str, sizes: tuple[int, ...] = SIZES) -> float:
    """Return the best rate of square matrix products, as ``linear`` computes them."""
    rates = []
    for size in sizes:
        a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
        seconds = best(partial(torch.nn.functional.linear, a, b))
        rates.append(2 * size**3 / seconds / 1e9)
    return max(rates)


def bandwidth_gb(device: str, megabytes: int = 512) -> dict[str, float]:
    """Return how fast memory is read (a sum), and copied (bytes read plus bytes written)."""
    numbers = torch.ones(megabytes * 2**20 // 4, device=device)
    target = torch.empty_like(numbers)
    size = numbers.numel() * 4
    return {
        "read_gb_per_s": size / best(numbers.sum) / 1e9,
        "copy_gb_per_s": 2 * size / best(lambda: target.copy_(numbers)) / 1e9,
    }


def best(function: Callable[[], object]) -> float:
    """Return the least seconds of a few calls."""
    function()
    seconds = []
    for _ in range(REPEATS):
        stopwatch = Stopwatch()
        function()
        seconds.append(stopwatch.seconds())
    return min(seconds)


def run(gate: Gate, *, device: str, tiny: bool = False) -> None:
    """Measure the limits, in a process of their own."""
    sizes = SIZES[:1] if tiny else SIZES if device == "cpu" else (4096, 8192)
    for _ in gate:
        gate.report(
            bf16_gflops=matmul_gflops(torch.bfloat16, device, sizes),
            fp32_gflops=matmul_gflops(torch.float32, device, sizes),
            **bandwidth_gb(device, 64 if tiny else 512),
        )
