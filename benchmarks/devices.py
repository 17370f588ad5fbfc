"""Threads, precision and clocks of a measured process."""

from __future__ import annotations

import random
import time
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch

from benchmarks.work import Precision


def weights_dtype(precision: Precision) -> torch.dtype:
    """Return the dtype of the weights."""
    return torch.bfloat16 if precision == "bf16" else torch.float32


def autocast(precision: Precision, device: str) -> AbstractContextManager:
    """Return the context in which a forward pass runs."""
    if precision == "bf16-mixed":
        return torch.autocast(device, torch.bfloat16)
    return nullcontext()


def seed_all(seed: int) -> None:
    """Seed what a peer draws from."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


class Stopwatch:
    """Seconds since it was made; waits for the device's queue first."""

    def __init__(self, device: str) -> None:
        self.device = device
        self._synchronise()
        self._started = time.perf_counter()

    def seconds(self) -> float:
        """Return the seconds since the start."""
        self._synchronise()
        return time.perf_counter() - self._started

    def _synchronise(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


def device_memory(device: str) -> dict[str, float]:
    """Return the accelerator's largest memory so far, if there is one."""
    if device != "cuda":
        return {}
    return {"peak_device_mb": torch.cuda.max_memory_allocated() / 2**20}
