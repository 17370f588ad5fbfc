"""Attention in blocks of keys, where a group's rows are many or long."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class CachedLayer(NamedTuple):
    """Keys and values of one layer, and where its rows stand.

    ``prompt_key`` and ``prompt_value`` are [P, K, S, D], of which ``prompt_length`` [P] tokens each
    count. ``own_key`` and ``own_value`` are [R, K, T, D], the last token's to be written.
    ``prompt_R`` names each row's prompt; rows of a prompt stand beside each other. ``row_PG``
    [P * G] is the row that takes each slot of its prompt (any row where none does), ``slot_R``
    which slot a row takes; both are None where the device's backend ``attends_to_caches``.
    """

    prompt_key: Tensor
    prompt_value: Tensor
    prompt_length: Tensor
    own_key: Tensor
    own_value: Tensor
    prompt_R: Tensor
    row_PG: Tensor | None
    slot_R: Tensor | None


def attend_in_blocks(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cached: CachedLayer,
    row_PG: Tensor,
    slot_R: Tensor,
    scaling: float,
) -> Tensor:
    """Attend to the cached keys with PyTorch's own operations.

    The prompt's keys are read once for all rows of a group; the two parts are joined as flash
    attention joins blocks, by their maxima and normalisers (2205.14135, section 3.1).
    """
    rows, heads, _, size = query.shape
    key_heads = key.shape[1]
    cached.own_key[:, :, -1] = key[:, :, 0].to(cached.own_key.dtype)
    cached.own_value[:, :, -1] = value[:, :, 0].to(cached.own_value.dtype)
    dtype = cached.own_key.dtype
    query_RKnD = (query.float() * scaling).view(rows, key_heads, heads // key_heads, size)

    num_prompts, _, prompt_tokens, _ = cached.prompt_key.shape
    grid = query_RKnD[row_PG].unflatten(0, (num_prompts, -1)).transpose(1, 2)
    scores = (grid.flatten(2, 3).to(dtype) @ cached.prompt_key.transpose(-1, -2)).float()
    step_S = torch.arange(prompt_tokens, device=query.device)
    outside_PS = step_S >= cached.prompt_length[:, None]
    scores = scores.masked_fill(outside_PS[:, None, None], -torch.inf)
    # a prompt of one token has nothing here, and -inf - -inf would be nan
    highest = scores.amax(-1, keepdim=True).clamp(min=-1e30)
    weights = (scores - highest).exp()
    out = (weights.to(dtype) @ cached.prompt_value).float()
    parts = (out, highest, weights.sum(-1, keepdim=True))
    shape = (-1, heads // key_heads)
    prompt_out, prompt_highest, prompt_sum = (
        part.unflatten(2, shape).transpose(1, 2).flatten(0, 1)[slot_R] for part in parts
    )

    scores = (query_RKnD.to(dtype) @ cached.own_key.transpose(-1, -2)).float()
    highest = torch.maximum(scores.amax(-1, keepdim=True), prompt_highest)
    weights = (scores - highest).exp()
    share = (prompt_highest - highest).exp()
    total = weights.sum(-1, keepdim=True) + share * prompt_sum
    own_out = (weights.to(dtype) @ cached.own_value).float()
    out_RKnD = (own_out + share * prompt_out) / total
    return out_RKnD.to(value.dtype).view(rows, 1, heads, size)
