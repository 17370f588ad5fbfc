"""A policy as it decodes: the same modules and parameters, products in the compute dtype."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from r1lit.device import backend


class CastLinear(nn.Module):
    """A linear layer whose weights have been cast to a dtype."""

    weight: Tensor
    bias: Tensor | None

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype
        self.register_buffer("weight", _cast(weight, dtype))
        self.register_buffer("bias", _cast(bias, dtype))

    def forward(self, x: Tensor) -> Tensor:
        """Return x @ weight.T + bias in that dtype."""
        return nn.functional.linear(x.to(self.dtype), self.weight, self.bias)


class Autocast(nn.Module):
    """A module that holds matrices itself, under autocast: it computes as it does in training.

    Routers multiply by a matrix of their own, mixtures of experts by one tensor for all experts.
    Autocast makes the first product in the compute dtype; Hugging Face's grouped product of the
    second is not on autocast's list, and stays in the dtype of the weights.
    """

    def __init__(self, module: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.module, self.dtype = module, dtype
        self.kind = next(module.parameters(recurse=False)).device.type

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)

    def forward(self, *args: Any, **options: Any) -> Any:
        """Call it."""
        with torch.autocast(self.kind, self.dtype):
            return self.module(*args, **options)


def for_decoding(module: nn.Module, dtype: torch.dtype | None) -> Any:
    """Return a stand-in for a module: the same code and parameters, products in a dtype.

    Nothing but the linear layers' weights is copied, and those only where the dtype differs. None
    changes no product.
    """
    if dtype is not None and type(module) is nn.Linear:
        return _linear(module.weight, module.bias, dtype)
    if dtype is not None and type(module) is Conv1D:
        return _linear(module.weight.T, module.bias, dtype)
    stand_in = copy.copy(module)
    stand_in.training = False
    stand_in._modules = {
        name: None if child is None else for_decoding(child, dtype)
        for name, child in module._modules.items()
    }
    matrices = [x for x in module._parameters.values() if x is not None and x.ndim > 1]
    if dtype is None or isinstance(module, nn.Embedding) or all(x.dtype == dtype for x in matrices):
        return stand_in
    return Autocast(stand_in, dtype)


def _linear(weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> nn.Module:
    own = backend(weight.device).decoding_linear(weight, bias, dtype)
    return CastLinear(weight, bias, dtype) if own is None else own


def _cast(x: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    return None if x is None else x.detach().to(dtype)
