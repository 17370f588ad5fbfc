"""Attention of one new token a row, over a prompt that a group shares and over the row's own past.

R rows   P prompts   G places for rows of a prompt   S prompt tokens   T own tokens
K key-value heads   n query heads for each of them   D head size
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class CachedLayer(NamedTuple):
    """Keys and values of one layer, and where its rows stand.

    ``prompt_key`` and ``prompt_value`` are [P, K, S, D] in float32, ``prompt_bias`` [P, 1, 1, S] is
    0 at tokens and -inf in the padding. ``own_key`` and ``own_value`` are [R, K, T, D]; the new
    token's are written at index ``last`` [1]. ``row_PG`` [P * G] says which row takes each place of
    its prompt (any row where none does), ``place_R`` which place a row takes.
    """

    prompt_key: Tensor
    prompt_value: Tensor
    prompt_bias: Tensor
    own_key: Tensor
    own_value: Tensor
    last: Tensor
    row_PG: Tensor
    place_R: Tensor


def attend_cached(
    query: Tensor, key: Tensor, value: Tensor, cached: CachedLayer, scaling: float
) -> Tensor:
    """Write the new token's key and value, and attend with its query.

    The prompt's keys are read once for all rows of a group; the two parts are joined as flash
    attention joins blocks, by their maxima and normalisers (2205.14135, section 3.1).

    Args:
        query: [R, K * n, 1, D].
        key: [R, K, 1, D].
        value: [R, K, 1, D].
        cached: the layer's cache.
        scaling: of the scores.

    Returns:
        [R, 1, K * n, D], in the dtype of ``value``.
    """
    rows, heads, _, size = query.shape
    key_heads = key.shape[1]
    cached.own_key.index_copy_(2, cached.last, key.to(cached.own_key.dtype))
    cached.own_value.index_copy_(2, cached.last, value.to(cached.own_value.dtype))
    query_RKnD = query.float().view(rows, key_heads, heads // key_heads, size) * scaling

    num_prompts = len(cached.prompt_key)
    grid = query_RKnD[cached.row_PG].unflatten(0, (num_prompts, -1)).transpose(1, 2)
    scores = grid.flatten(2, 3) @ cached.prompt_key.transpose(-1, -2) + cached.prompt_bias
    # a prompt of one token has nothing here, and -inf - -inf would be nan
    highest = scores.amax(-1, keepdim=True).clamp(min=-1e30)
    weights = (scores - highest).exp()
    parts = (weights @ cached.prompt_value, highest, weights.sum(-1, keepdim=True))
    shape = (-1, heads // key_heads)
    prompt_out, prompt_highest, prompt_sum = (
        part.unflatten(2, shape).transpose(1, 2).flatten(0, 1)[cached.place_R] for part in parts
    )

    scores = _scores(query_RKnD, cached.own_key)
    highest = torch.maximum(scores.amax(-1, keepdim=True), prompt_highest)
    weights = (scores - highest).exp()
    share = (prompt_highest - highest).exp()
    total = weights.sum(-1, keepdim=True) + share * prompt_sum
    out_RKnD = (_weighted(weights, cached.own_value) + share * prompt_out) / total
    return out_RKnD.to(value.dtype).view(rows, 1, heads, size)


def _scores(query_RKnD: Tensor, key_RKTD: Tensor) -> Tensor:
    if _fuses(query_RKnD):
        return (query_RKnD[..., None, :] * key_RKTD[:, :, None].float()).sum(-1)
    return (query_RKnD.to(key_RKTD.dtype) @ key_RKTD.transpose(-1, -2)).float()


def _weighted(weight_RKnT: Tensor, value_RKTD: Tensor) -> Tensor:
    if _fuses(weight_RKnT):
        return (weight_RKnT[..., None] * value_RKTD[:, :, None].float()).sum(-2)
    return (weight_RKnT.to(value_RKTD.dtype) @ value_RKTD).float()


def _fuses(x: Tensor) -> bool:
    """Return whether product and sum become one loop, which on a CPU beats many tiny products."""
    return x.device.type == "cpu" and torch.compiler.is_compiling()
