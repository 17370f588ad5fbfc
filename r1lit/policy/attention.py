"""The attention function of packed tokens, in the form Hugging Face models take one.

N packed tokens   F slots in the rows of attention   R rows   H heads   D head size   E = H*D
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from r1lit.device import backend
from r1lit.policy.cached_attention import CachedLayer, attend_cached
from r1lit.policy.packed import AttentionRows, FromRows, PackedTokens, ToRows

ATTENTION = "r1lit"
UNSUPPORTED = ("sliding_window", "softcap", "s_aux", "position_bias")


class UnsupportedAttentionError(Exception):
    """Unsupported attention feature for packed tokens."""


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
        attention_mask: of PyTorch's attention; ignored with a keyword.
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
    unsupported = [name for name in UNSUPPORTED if options.get(name) is not None]
    if unsupported:
        raise UnsupportedAttentionError(", ".join(unsupported))
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    if cached is not None:
        return attend_cached(query, key, value, cached, scaling), None
    if packed is None:
        assert prompt_cache is not None
        prompt_cache.append((key, value))
        return _attend_causally(module, query, key, value, scaling), None
    value = value.to(autocast_dtype(value.device, value.dtype))
    own = backend(value.device)
    if own.attends_end_to_end(query, value, dropout):
        rows = packed.end_to_end
        q, k, v = (_to_rows(x.to(value.dtype), rows) for x in (query, key, value))
        output_FE = own.varlen_attention(
            q, k, v, rows.start_R1, rows.bucket_shapes[0][1], scaling
        ).flatten(1)
    else:
        rows = packed.in_buckets
        output_FE = _attend_in_buckets(module, query, key, value, rows, scaling, dropout)
    output_NE = FromRows.apply(output_FE, rows)
    return output_NE.view(1, len(packed), query.shape[1], -1), None


def _attend_in_buckets(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    rows: AttentionRows,
    scaling: float,
    dropout: float,
) -> Tensor:
    """Attend bucket by bucket; return [F, heads * size]."""
    slots_FHD = [_to_rows(x, rows) for x in (query, key, value)]
    sizes = [num_rows * width for num_rows, width in rows.bucket_shapes]
    buckets = zip(*(x.split(sizes) for x in slots_FHD), strict=True)
    outputs = []
    for shape, bucket in zip(rows.bucket_shapes, buckets, strict=True):
        q, k, v = (x.unflatten(0, shape).transpose(1, 2) for x in bucket)
        output = _attend_causally(module, q, k, v, scaling, dropout)
        outputs.append(output.flatten(0, 1).flatten(1))
    return torch.cat(outputs)


def _attend_causally(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scaling: float,
    dropout: float = 0.0,
) -> Tensor:
    """Return [rows, tokens, heads, size], in the dtype of ``value``."""
    own = backend(query.device).causal_attention(query, key, value, scaling, dropout)
    if own is not None:
        return own
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


def _to_rows(states: Tensor, rows: AttentionRows) -> Tensor:
    """Return [1, heads, N, size] as [F, heads, size]."""
    _, heads, num_tokens, size = states.shape
    flat_NE = states[0].transpose(0, 1).reshape(num_tokens, heads * size)
    return ToRows.apply(flat_NE, rows).view(-1, heads, size)


AttentionInterface.register(ATTENTION, attend)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)
