"""Speed and memory of an iteration."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import torch

GIB = float(1 << 30)


PEAK_FLOPS = {
    "B200": 2250e12, "H200": 989e12, "H100 PCIe": 756e12, "H100": 989e12, "GH200": 989e12,
    "A100": 312e12, "L40S": 362e12, "A10G": 125e12, "L4": 121e12, "RTX 4090": 165e12,
    "RTX 3090": 71e12,
}  # fmt: skip
"""Dense bfloat16 FLOPs a second by a part of the GPU's name, from NVIDIA's data sheets."""


def peak_flops(name: str) -> float | None:
    """Return a GPU's dense bfloat16 FLOPs a second; None for one that is not listed.

    >>> peak_flops("NVIDIA H100 80GB HBM3"), peak_flops("Quadro")
    (989000000000000.0, None)
    """
    return next((flops for part, flops in PEAK_FLOPS.items() if part in name), None)


def speed_metrics(
    metrics: Mapping[str, float], device: torch.device, flops_per_token: float
) -> dict[str, float]:
    """Return the speeds that an iteration's counts and times give, by logged name.

    Model FLOPs utilisation is of this rank's update: ``flops_per_token`` (6 N of a model of N
    weights that are all trained, forward and backward) times response tokens, by seconds and by the
    GPU's peak in bfloat16. Prompts, attention and passes without a gradient are no part of it, so
    it is a lower bound. It is left out for a device whose peak is not known.
    """
    num_tokens = metrics.get("train/num_tokens", 0.0)
    seconds = {part: metrics.get(f"time/{part}_s", 0.0) for part in ("rollout", "update")}
    found = {f"speed/{k}_tokens_per_s": num_tokens / s for k, s in seconds.items() if s > 0}
    if device.type == "cuda":
        peak = peak_flops(torch.cuda.get_device_name(device))
        if peak is not None and seconds["update"] > 0:
            found["speed/update_mfu"] = flops_per_token * num_tokens / seconds["update"] / peak
        found["memory/device_gib"] = torch.cuda.memory_allocated(device) / GIB
        found["memory/device_peak_gib"] = torch.cuda.max_memory_allocated(device) / GIB
    return found | host_memory()


def host_memory() -> dict[str, float]:
    """Return this process's memory on the host: now (Linux), and at its peak (not on Windows)."""
    try:
        import resource
    except ImportError:
        return {}
    unit = 1 if sys.platform == "darwin" else 1024
    found = {
        "memory/host_peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / GIB
    }
    statm = Path("/proc/self/statm")
    if statm.exists():
        pages = int(statm.read_text().split()[1])
        found["memory/host_gib"] = pages * resource.getpagesize() / GIB
    return found
