"""Which backend computes on a device. Nothing else names ``r1lit.cpu`` and ``r1lit.cuda``."""

from __future__ import annotations

import torch

from r1lit.backend import Backend
from r1lit.cpu import CPU
from r1lit.cuda import CUDA

BACKENDS: dict[str, Backend] = {"cpu": CPU(), "cuda": CUDA()}
PYTORCH = Backend()


def backend(device: torch.device) -> Backend:
    """Return the backend of a device; PyTorch's own where none is listed."""
    return BACKENDS.get(device.type, PYTORCH)


def inference_dtype(device: torch.device) -> str:
    """Return the dtype to generate in: bfloat16, or float32 on a device that is slow in it."""
    return "bfloat16" if backend(device).has_fast_bfloat16 else "float32"
