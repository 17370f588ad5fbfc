"""A policy as it decodes: the same modules and parameters, linear layers in the compute dtype.

On a CPU with fast bfloat16 products, weights are laid out once a rollout as the kernel wants them.
"""

from __future__ import annotations

import copy
from itertools import count
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn

from r1lit.machine import has_fast_bfloat16

ROWS_AT_ONCE = 64  # the batch that weights are laid out for; any other works too

_weights: WeakValueDictionary[int, Tensor] = WeakValueDictionary()
_names = count()
_library = torch.library.Library("r1lit", "DEF")
# the laid out weight cannot go through torch.compile; its number can
_library.define("packed_linear(Tensor x, Tensor name, int out_features, Tensor? bias) -> Tensor")


def _packed_linear(x: Tensor, name: Tensor, out_features: int, bias: Tensor | None) -> Tensor:
    weight = _weights[int(name)]
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def _shape_only(x: Tensor, name: Tensor, out_features: int, bias: Tensor | None) -> Tensor:
    return x.new_empty(*x.shape[:-1], out_features)


_library.impl("packed_linear", _packed_linear, "CPU")
torch.library.register_fake("r1lit::packed_linear", _shape_only, lib=_library)


class CastLinear(nn.Module):
    """A linear layer whose weights have been cast to a dtype."""

    weight: Tensor
    bias: Tensor | None

    def __init__(self, linear: nn.Linear, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype
        self.register_buffer("weight", linear.weight.detach().to(dtype))
        self.register_buffer(
            "bias", None if linear.bias is None else linear.bias.detach().to(dtype)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return x @ weight.T + bias in that dtype."""
        return nn.functional.linear(x.to(self.dtype), self.weight, self.bias)


class PackedLinear(nn.Module):
    """The same in bfloat16 on a CPU, the weight laid out for its kernel."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight = linear.weight.detach().bfloat16().contiguous()
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight, ROWS_AT_ONCE)
        self.out_features = linear.out_features
        name = next(_names)
        _weights[name] = self.packed
        self.register_buffer("name", torch.tensor(name))
        self.register_buffer(
            "bias", None if linear.bias is None else linear.bias.detach().bfloat16()
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return x @ weight.T + bias in bfloat16."""
        return torch.ops.r1lit.packed_linear(x.bfloat16(), self.name, self.out_features, self.bias)


def for_decoding(module: nn.Module, dtype: torch.dtype) -> Any:
    """Return a stand-in for a module: the same code and parameters, other linear layers.

    Nothing but the linear layers' weights is copied, and those only where the dtype differs.
    """
    if type(module) is nn.Linear:
        on_cpu = module.weight.device.type == "cpu"
        if on_cpu and dtype == torch.bfloat16 and has_fast_bfloat16():
            return PackedLinear(module)
        return CastLinear(module, dtype)
    stand_in = copy.copy(module)
    stand_in.training = False
    stand_in._modules = {
        name: None if child is None else for_decoding(child, dtype)
        for name, child in module._modules.items()
    }
    return stand_in
