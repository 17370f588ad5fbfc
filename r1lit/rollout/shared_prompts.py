"""Decoding over shared prompts: a group's prompt is cached once, and read once per step.

P prompts   G slots for rows of a prompt   R rows   S prompt tokens   T own tokens   V vocabulary
E different prompt lengths   L layers   K key-value heads   D head size
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from r1lit.device import backend
from r1lit.policy import Policy
from r1lit.policy.attention import autocast_dtype, no_mask
from r1lit.policy.block_attention import CachedLayer
from r1lit.rollout.decoding import Decoding

BLOCK = 64  # own tokens by which caches grow
# prompts are padded to a multiple of it: CPUs add up what is left over in another order, and a
# prompt's logits would depend on how long others are
PAD_MULTIPLE = 16


class Decoder:
    """A policy made ready to decode: weights in the compute dtype, layers compiled or not.

    It holds the weights of one moment; make a new one after an update.

    Args:
        policy: one that attends over packed tokens (``r1lit.policy.is_packed``).
        dtype: of products and caches.
        run_layer: calls a decoder layer with its arguments, compiled or not.
        cast: whether to lay weights out in that dtype; a trial leaves them as they are.
    """

    def __init__(
        self,
        policy: Policy,
        dtype: torch.dtype,
        run_layer: Callable[..., Any],
        *,
        cast: bool = True,
    ) -> None:
        self.dtype = dtype
        stand_in = for_decoding(policy, dtype if cast else None)
        self.model = stand_in.model
        layers = stand_in.layers
        for index, layer in enumerate(layers):
            layers._modules[str(index)] = _CachedLayerCall(layer, index, run_layer)

    def __call__(self, ids: Tensor, positions: Tensor, **attention: Any) -> Tensor:
        """Return the logits of ids [rows, tokens] at positions, all of them."""
        with torch.autocast(ids.device.type, enabled=False):
            output = self.model(
                input_ids=ids,
                position_ids=positions,
                attention_mask=no_mask(ids.device),
                use_cache=False,
                **attention,
            )
        return output.logits


class SharedPromptDecoding(Decoding):
    """Prefills each prompt once, padded on the right, and keeps it once.

    A row's own past begins with the prompt's last token, so that it is never empty.
    """

    def __init__(self, decoder: Decoder, prompts: Sequence[Sequence[int]], group_size: int) -> None:
        self.decoder = decoder
        device = next(decoder.model.parameters()).device
        length_P = torch.tensor([len(prompt) for prompt in prompts], device=device)
        width = -(-int(length_P.max()) // PAD_MULTIPLE) * PAD_MULTIPLE
        ids_PS = torch.zeros(len(prompts), width, dtype=torch.long, device=device)
        for row, prompt in enumerate(prompts):
            ids_PS[row, : len(prompt)] = torch.tensor(prompt, device=device)
        # no position beyond the longest prompt's: some rotary embeddings go by the greatest
        position_S = torch.arange(width, device=device).clamp(max=int(length_P.max()) - 1)
        prefilled: list[tuple[Tensor, Tensor]] = []
        last_P = length_P - 1
        ends, which_P = last_P.unique(return_inverse=True)
        logits_PEV = decoder(
            ids_PS, position_S.expand_as(ids_PS), prompt_cache=prefilled, logits_to_keep=ends
        )
        row_P = torch.arange(len(prompts), device=device)
        self.prompt_R = _contiguous_copy(row_P.repeat_interleave(group_size))
        self.position_R = length_P[self.prompt_R]
        self.first_logits_RV = logits_PEV[row_P, which_P][self.prompt_R]
        self.prompts_L = [
            (_contiguous_copy(key.to(decoder.dtype)), _contiguous_copy(value.to(decoder.dtype)))
            for key, value in prefilled
        ]
        self.length_P = last_P  # of the prompts but for their last tokens
        last_L = [(key[row_P, :, last_P], value[row_P, :, last_P]) for key, value in prefilled]
        self.own_L = [
            tuple(_with_spare_room(x[self.prompt_R].unsqueeze(2).to(decoder.dtype)) for x in layer)
            for layer in last_L
        ]
        self.num_own = 1
        self.without_slots = backend(device).attends_to_caches(decoder.dtype)
        self.row_PG: Tensor | None = None
        self.slot_R: Tensor | None = None
        self._assign_slots()

    def step(self, token_R: Tensor) -> Tensor:
        """Append one token to each row; return the logits of the next."""
        self.num_own += 1
        # grow one token early: a cache filled to the end has other strides
        if self.num_own == self.own_L[0][0].shape[2]:
            for index, layer in enumerate(self.own_L):  # one at a time: only one is there twice
                self.own_L[index] = tuple(_with_spare_room(x) for x in layer)
        cached = [
            CachedLayer(
                prompt_key=prompt_key,
                prompt_value=prompt_value,
                prompt_length=self.length_P,
                own_key=own_key[:, :, : self.num_own],
                own_value=own_value[:, :, : self.num_own],
                prompt_R=self.prompt_R,
                row_PG=self.row_PG,
                slot_R=self.slot_R,
            )
            for (prompt_key, prompt_value), (own_key, own_value) in zip(
                self.prompts_L, self.own_L, strict=True
            )
        ]
        logits_R1V = self.decoder(token_R[:, None], self.position_R[:, None], cached=cached)
        self.position_R = self.position_R + 1
        return logits_R1V[:, -1]

    def keep_rows(self, rows: Tensor) -> None:
        """Drop all rows but these, and the prompts that no row is left of."""
        kept = at_least_two(self.prompt_R[rows].unique(), len(self.length_P))
        self.prompt_R = torch.searchsorted(kept, self.prompt_R[rows])
        self.position_R = self.position_R[rows]
        for index, layer in enumerate(self.own_L):
            self.own_L[index] = tuple(x[rows] for x in layer)
        if len(kept) < len(self.length_P):
            self.length_P = self.length_P[kept]
            self.prompts_L = [(key[kept], value[kept]) for key, value in self.prompts_L]
        self._assign_slots()

    def _assign_slots(self) -> None:
        """Give each row a slot beside the others of its prompt, where attention goes by slots."""
        if self.without_slots:
            return
        count_P = self.prompt_R.bincount(minlength=len(self.length_P))
        most = max(2, int(count_P.max()))
        first_P = count_P.cumsum(0) - count_P
        within_R = torch.arange(len(self.prompt_R), device=count_P.device) - first_P[self.prompt_R]
        self.slot_R = self.prompt_R * most + within_R
        row_PG = torch.zeros(len(count_P) * most, dtype=torch.long, device=count_P.device)
        row_PG[self.slot_R] = torch.arange(len(self.prompt_R), device=count_P.device)
        self.row_PG = row_PG


def at_least_two(chosen: Tensor, count: int) -> Tensor:
    """Return ascending indices below ``count``, with one more if there is only one.

    ``torch.compile`` compiles once for a size of 1 and once for all others.
    """
    if len(chosen) != 1 or count < 2:
        return chosen
    return torch.stack([chosen[0], (chosen[0] + 1) % count]).sort().values


class _CachedLayerCall(nn.Module):
    """Hands a decoder layer its own part of the caches."""

    def __init__(self, layer: nn.Module, index: int, run_layer: Callable[..., Any]) -> None:
        super().__init__()
        self.layer = layer
        self.index = index
        self.run_layer = run_layer

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.layer, name)

    def forward(
        self, *args: Any, cached: Sequence[CachedLayer] | None = None, **options: Any
    ) -> Any:
        """Run the layer."""
        if cached is None:
            return self.layer(*args, **options)
        return self.run_layer(self.layer, *args, cached=cached[self.index], **options)


def run_layer(layer: nn.Module, *args: Any, **options: Any) -> Any:
    """Call a layer: the function that is compiled, once for all layers."""
    return layer(*args, **options)


def compute_dtype(policy: Policy) -> torch.dtype:
    """Return the dtype of training's products: that of autocast, or else of the weights."""
    return autocast_dtype(policy.device, policy.dtype)


def _contiguous_copy(x: Tensor) -> Tensor:
    """Return a copy: ``torch.compile`` would compile once for views and once for others."""
    return x.clone(memory_format=torch.contiguous_format)


def _with_spare_room(own_RKTD: Tensor) -> Tensor:
    rows, heads, tokens, size = own_RKTD.shape
    room = own_RKTD.new_empty(rows, heads, (tokens // BLOCK + 1) * BLOCK, size)
    room[:, :, :tokens] = own_RKTD
    return room


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
        """Call the module under autocast."""
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
