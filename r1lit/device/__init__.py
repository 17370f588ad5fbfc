"""Backends: the fast paths of each kind of device; no code outside this room names one.

`Backend` has PyTorch's operations, `cpu` and `cuda` replace some.
"""

from __future__ import annotations

import torch

from r1lit.device.cpu import CPU
from r1lit.device.cpu.machine import threads
from r1lit.device.cuda import CUDA
from r1lit.device.operations import Backend, add_gradient, cumulative_sum, gradient_of

__all__ = [
    "BACKENDS",
    "Backend",
    "add_gradient",
    "backend",
    "cumulative_sum",
    "gradient_of",
    "inference_dtype",
    "threads",
]

BACKENDS: dict[str, Backend] = {"cpu": CPU(), "cuda": CUDA()}
PYTORCH = Backend()


def backend(device: torch.device) -> Backend:
    """Return the backend of a device; PyTorch's own where none is listed."""
    return BACKENDS.get(device.type, PYTORCH)


def inference_dtype(device: torch.device) -> str:
    """Return the dtype to generate in: bfloat16, or float32 on a device that is slow in it."""
    return "bfloat16" if backend(device).has_fast_bfloat16 else "float32"
