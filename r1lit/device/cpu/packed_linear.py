"""A linear layer in bfloat16, whose weights are packed once in the kernel's layout."""

from __future__ import annotations

import torch
from torch import Tensor, nn

BLOCK = 64  # features out of a block of the kernel


class PackedLinear(nn.Module):
    """A linear layer's product by a kernel: for few rows PyTorch's own takes far longer."""

    weight: Tensor
    bias: Tensor | None

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features = len(weight)
        self.register_buffer("weight", packed(weight.detach().bfloat16()))
        self.register_buffer("bias", None if bias is None else bias.detach().bfloat16())

    def forward(self, x: Tensor) -> Tensor:
        """Return x @ weight.T + bias in bfloat16."""
        return torch.ops.r1lit.packed_linear(
            x.bfloat16(), self.weight, self.out_features, self.bias
        )


def packed(weight_NK: Tensor) -> Tensor:
    """Return a weight in blocks of ``BLOCK`` rows, pairs of columns side by side.

    The last block is filled up with zeros: [N / 64, K / 2, 64, 2].
    """
    rows, columns = weight_NK.shape
    filled = nn.functional.pad(weight_NK, (0, 0, 0, -rows % BLOCK))
    return filled.view(-1, BLOCK, columns // 2, 2).transpose(1, 2).contiguous()
