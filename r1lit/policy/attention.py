"""The attention function of packed tokens, in the form Hugging Face models take one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from r1lit.cpu.tiled_attention import attend_tiled, suits_tiles
from r1lit.policy.cached_attention import CachedLayer, attend_cached
from r1lit.policy.packed import FromRows, PackedTokens, ToRows

ATTENTION = "r1lit"
UNSUPPORTED = ("sliding_window", "softcap", "s_aux", "position_bias")


class UnsupportedAttentionError(Exception):
    """The model asks for an attention that packed tokens are not computed with."""


def has_packed_attention(model: PreTrainedModel) -> bool:
    """Return whether a model attends over packed tokens when it is given some."""
    return getattr(model.config, "_attn_implementation", None) == ATTENTION


def no_mask(device: torch.device) -> Tensor:
    """Return a mask that keeps Hugging Face from making one: ``attend`` goes by its keywords."""
    return torch.empty(1, 1, 1, 1, device=device)


def autocast_dtype(device: torch.device, otherwise: torch.dtype) -> torch.dtype:
    """Return the dtype in which products are made on a device: that of autocast where it is on."""
    kind = device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else otherwise


def attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    packed: PackedTokens | None = None,
    prompt_cache: list[tuple[Tensor, Tensor]] | None = None,
    cached: CachedLayer | None = None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attend as a keyword says; without one this is PyTorch's attention as it is.

    Args:
        module: the attention layer.
        query: [rows, heads, tokens, size]; packed, one row of N tokens.
        key: likewise.
        value: likewise.
        attention_mask: of PyTorch's attention; a keyword says all there is to know.
        packed: attend within the rows of packed tokens.
        prompt_cache: attend causally, and append keys and values.
        cached: attend with one new token a row; see ``attend_cached``.
        dropout: of the weights.
        scaling: of the scores.
        **options: of PyTorch's attention.

    Returns:
        [rows, tokens, heads, size], and no weights.
    """
    if packed is None and prompt_cache is None and cached is None:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **options
        )
    asked = [name for name in UNSUPPORTED if options.get(name) is not None]
    if asked:
        raise UnsupportedAttentionError(", ".join(asked))
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    if cached is not None:
        return attend_cached(query, key, value, cached, scaling), None
    if packed is None:
        assert prompt_cache is not None
        prompt_cache.append((key, value))
        return _attend_causally(module, query, key, value, scaling), None
    value = value.to(autocast_dtype(value.device, value.dtype))
    rows_FHD = [_to_rows(x, packed) for x in (query, key, value)]
    sizes = [rows * width for rows, width in packed.bucket_shapes]
    buckets = zip(*(x.split(sizes) for x in rows_FHD), strict=True)
    outputs = []
    for (rows, width), bucket in zip(packed.bucket_shapes, buckets, strict=True):
        q, k, v = (x.unflatten(0, (rows, width)).transpose(1, 2) for x in bucket)
        output = _attend_causally(module, q, k, v, scaling, dropout)
        outputs.append(output.flatten(0, 1).flatten(1))
    output_NE = FromRows.apply(torch.cat(outputs), packed)
    return output_NE.view(1, len(packed), query.shape[1], -1), None


def _attend_causally(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scaling: float,
    dropout: float = 0.0,
) -> Tensor:
    """Return [rows, tokens, heads, size], in the dtype of ``value``."""
    if suits_tiles(query, value, dropout):
        return attend_tiled(query, key, value, scaling)
    dtype = value.dtype
    output, _ = sdpa_attention_forward(
        module,
        query.to(dtype),
        key.to(dtype),
        value,
        None,
        dropout=dropout,
        scaling=scaling,
        is_causal=True,
    )
    return output


def _to_rows(states: Tensor, packed: PackedTokens) -> Tensor:
    _, heads, num_tokens, size = states.shape
    flat_NE = states[0].transpose(0, 1).reshape(num_tokens, heads * size)
    return ToRows.apply(flat_NE, packed).view(-1, heads, size)


AttentionInterface.register(ATTENTION, attend)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)
