"""A policy as it decodes: the same modules and parameters, linear layers in the compute dtype.

On a CPU with fast bfloat16 products, weights are laid out once a rollout as the kernel reads them.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from r1lit.cpu import has_bfloat16_kernels

BLOCK = 64  # features out of a block of the kernel


class CastLinear(nn.Module):
    """A linear layer whose weights have been cast to a dtype."""

    weight: Tensor
    bias: Tensor | None

    def __init__(self, linear: nn.Linear, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype
        self.register_buffer("weight", linear.weight.detach().to(dtype))
        self.register_buffer("bias", _cast(linear.bias, dtype))

    def forward(self, x: Tensor) -> Tensor:
        """Return x @ weight.T + bias in that dtype."""
        return nn.functional.linear(x.to(self.dtype), self.weight, self.bias)


class PackedLinear(nn.Module):
    """The same in bfloat16 on a CPU, by a kernel: for few rows PyTorch's own takes far longer."""

    weight: Tensor
    bias: Tensor | None

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.out_features = linear.out_features
        self.register_buffer("weight", laid_out(linear.weight.detach().bfloat16()))
        self.register_buffer("bias", _cast(linear.bias, torch.bfloat16))

    def forward(self, x: Tensor) -> Tensor:
        """Return x @ weight.T + bias in bfloat16."""
        return torch.ops.r1lit.packed_linear(
            x.bfloat16(), self.weight, self.out_features, self.bias
        )


def laid_out(weight_NK: Tensor) -> Tensor:
    """Return a weight in blocks of ``BLOCK`` rows, pairs of columns side by side.

    The last block is filled up with zeros: [N / 64, K / 2, 64, 2].
    """
    rows, columns = weight_NK.shape
    filled = nn.functional.pad(weight_NK, (0, 0, 0, -rows % BLOCK))
    return filled.view(-1, BLOCK, columns // 2, 2).transpose(1, 2).contiguous()


def for_decoding(module: nn.Module, dtype: torch.dtype) -> Any:
    """Return a stand-in for a module: the same code and parameters, other linear layers.

    Nothing but the linear layers' weights is copied, and those only where the dtype differs.
    """
    if type(module) is nn.Linear:
        on_cpu = module.weight.device.type == "cpu"
        suits = on_cpu and dtype == torch.bfloat16 and module.in_features % 2 == 0
        if suits and has_bfloat16_kernels():
            return PackedLinear(module)
        return CastLinear(module, dtype)
    stand_in = copy.copy(module)
    stand_in.training = False
    stand_in._modules = {
        name: None if child is None else for_decoding(child, dtype)
        for name, child in module._modules.items()
    }
    return stand_in


def _cast(bias: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    return None if bias is None else bias.detach().to(dtype)
