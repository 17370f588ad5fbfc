"""The backend that ``r1lit.device`` registers for CUDA: attention over rows without padding.

What of it has run on a GPU is in docs/PERFORMANCE.md.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from r1lit.device.operations import Backend, variables

try:
    from torch.nn.attention.varlen import varlen_attn
except ImportError:  # before PyTorch 2.10
    varlen_attn = None  # type: ignore[assignment]

LARGEST_HEAD = 256  # of FlashAttention 2's kernels
VARLEN_TAKES: set[str] = (
    set() if varlen_attn is None else set(inspect.signature(varlen_attn).parameters)
)
# PyTorch 2.10 and 2.11 share key-value heads without being told to
SHARED_HEADS: dict[str, Any] = {"enable_gqa": True} if "enable_gqa" in VARLEN_TAKES else {}


class CUDA(Backend):
    """FlashAttention's varlen kernels, as shipped with PyTorch, from compute capability 8.0 on."""

    @property
    def has_fast_bfloat16(self) -> bool:  # type: ignore[override]
        """True where the device has bfloat16 products in hardware."""
        return torch.cuda.get_device_capability() >= (8, 0)

    @contextmanager
    def deterministic(self) -> Iterator[None]:
        """Fix cuBLAS's workspaces too, and the sizes of blocks in compiled kernels.

        cuDNN's attention has no deterministic backward pass; PyTorch's other kernels have.
        """
        fixed = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "TORCHINDUCTOR_BATCH_INVARIANT": "1"}
        matmul, was = torch.backends.cuda.matmul, torch.backends.cuda.cudnn_sdp_enabled()
        reduced = matmul.allow_bf16_reduced_precision_reduction
        with variables(**fixed), super().deterministic():
            torch.backends.cuda.enable_cudnn_sdp(False)
            matmul.allow_bf16_reduced_precision_reduction = False
            try:
                yield
            finally:
                torch.backends.cuda.enable_cudnn_sdp(was)
                matmul.allow_bf16_reduced_precision_reduction = reduced

    def attends_end_to_end(self, query: Tensor, value: Tensor, dropout: float) -> bool:
        """Return whether the kernels take these: 16 bits, heads of one size, no dropout."""
        size = query.shape[-1]
        return (
            "window_size" in VARLEN_TAKES
            and value.dtype in (torch.bfloat16, torch.float16)
            and size == value.shape[-1]
            and size % 8 == 0
            and size <= LARGEST_HEAD
            and not dropout
            and torch.cuda.get_device_capability(query.device) >= (8, 0)
        )

    def varlen_attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        start_R1: Tensor,
        longest: int,
        scaling: float,
    ) -> Tensor:
        """Attend; a key-value head serves its group of query heads."""
        output = varlen_attn(
            query,
            key,
            value,
            start_R1,
            start_R1,
            longest,
            longest,
            scale=scaling,
            window_size=(-1, 0),
            **SHARED_HEADS,
        )
        assert isinstance(output, Tensor)
        return output
