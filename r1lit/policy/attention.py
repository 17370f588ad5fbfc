"""Packed (varlen) tokens, and attention over them and over caches.

    N packed tokens   F slots in the rows of attention   R rows   B responses of T tokens
    M tokens that several rows share   C slots of such a token, at most   L tokens of documents
    H heads   D head size   E = H*D, features of one token
    of caches: P prompts   G slots for rows of a prompt   S prompt tokens   T own tokens
    K key-value heads   n query heads for each of them

Everything that a transformer computes token by token runs over the N tokens. Attention alone needs
rows: there each row is put together again from its segments, under plain causal attention.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from r1lit.device import backend
from r1lit.policy.block_attention import CachedLayer, attend_in_blocks

FULL_ENOUGH = 0.8  # of a bucket's width that its shortest row fills


@dataclass(frozen=True, kw_only=True)
class AttentionRows:
    """Slots of tokens in the rows of attention, longest row first.

    ``bucket_shapes`` are (rows, width) of each bucket, its rows padded on the right; ``index_F``
    says which token lies in each slot, bucket after bucket (0 in the padding). ``owner_N`` is the
    slot of each token, its first if several rows share it; ``shared_M`` are the tokens that more
    than one row has, and ``copies_MC`` all their slots, padded with F. ``start_R1`` (int32) is the
    slot at which each bucket begins, and F.
    """

    bucket_shapes: tuple[tuple[int, int], ...]
    index_F: Tensor
    owner_N: Tensor
    shared_M: Tensor
    copies_MC: Tensor
    start_R1: Tensor


@dataclass(frozen=True, kw_only=True)
class PackedTokens:
    """N tokens, and the ``rows`` that they make up, each of one or more segments (indices)."""

    ids_N: Tensor
    position_N: Tensor
    segment_lengths: tuple[int, ...]
    rows: tuple[tuple[int, ...], ...]

    def __len__(self) -> int:
        return len(self.ids_N)

    @cached_property
    def in_buckets(self) -> AttentionRows:
        """Rows of like length together, each padded to the longest of its bucket."""
        return self._rows(FULL_ENOUGH)

    @cached_property
    def end_to_end(self) -> AttentionRows:
        """Each row a bucket of its own, so that there is no padding."""
        return self._rows(float("inf"))

    def _rows(self, full_enough: float) -> AttentionRows:
        lengths = self.segment_lengths
        starts = [0, *accumulate(lengths)]
        row_lengths = [sum(lengths[s] for s in row) for row in self.rows]
        slots: list[list[Tensor]] = [[] for _ in lengths]
        index, shapes, bucket_starts = [], [], [0]
        for bucket in _buckets(row_lengths, full_enough):
            width = row_lengths[bucket[0]]
            index_rw = torch.zeros(len(bucket), width, dtype=torch.long)
            for place, row in enumerate(bucket):
                at = 0
                for segment in self.rows[row]:
                    steps = torch.arange(lengths[segment])
                    index_rw[place, at : at + len(steps)] = starts[segment] + steps
                    slots[segment].append(bucket_starts[-1] + place * width + at + steps)
                    at += len(steps)
            shapes.append((len(bucket), width))
            index.append(index_rw.flatten())
            bucket_starts.append(bucket_starts[-1] + index_rw.numel())
        shared = [s for s, copies in enumerate(slots) if len(copies) > 1]
        most = max((len(slots[s]) for s in shared), default=0)
        nowhere = torch.tensor(bucket_starts[-1])
        copies = [
            torch.stack([*slots[s], *[nowhere.expand(lengths[s])] * (most - len(slots[s]))], -1)
            for s in shared
        ]
        device = self.ids_N.device
        return AttentionRows(
            bucket_shapes=tuple(shapes),
            index_F=torch.cat(index).to(device),
            owner_N=torch.cat([copies[0] for copies in slots]).to(device),
            shared_M=_joined([starts[s] + torch.arange(lengths[s]) for s in shared]).to(device),
            copies_MC=_joined(copies).to(device),
            start_R1=torch.tensor(bucket_starts, dtype=torch.int32, device=device),
        )


def pack_tokens(
    segments: Sequence[Tensor], rows: Sequence[Sequence[int]], device: torch.device | str = "cpu"
) -> PackedTokens:
    """Put segments end to end, each once, for rows that are made up of one or more of them.

    Rows [0, 1] and [0, 2] over a prompt of 2 tokens and responses of 3 and 1::

        packed     p p a a a b        position   0 1 2 3 4 2
        rows       p p a a a
                   p p b . .

    Args:
        segments: token ids, each 1-D and of at least one token.
        rows: indices of segments. A segment begins at the same position in every row that has it.
        device: where the tensors shall lie.
    """
    lengths = tuple(len(segment) for segment in segments)
    first_position = dict.fromkeys(range(len(segments)), 0)
    for row in rows:
        first_position |= zip(row, [0, *accumulate(lengths[s] for s in row)], strict=False)
    position_N = torch.cat([first_position[s] + torch.arange(n) for s, n in enumerate(lengths)])
    return PackedTokens(
        ids_N=torch.cat(list(segments)).to(device),
        position_N=position_N.to(device),
        segment_lengths=lengths,
        rows=tuple(tuple(row) for row in rows),
    )


def _buckets(lengths: Sequence[int], full_enough: float) -> list[list[int]]:
    """Split rows, longest first, so that each fills this share of its bucket's width."""
    buckets: list[list[int]] = []
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        if not buckets or lengths[row] < full_enough * lengths[buckets[-1][0]]:
            buckets.append([])
        buckets[-1].append(row)
    return buckets


def _joined(parts: list[Tensor]) -> Tensor:
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.long)


def pack_responses(
    prompts: Sequence[Sequence[int]], response_BT: Tensor, mask_BT: Tensor
) -> tuple[PackedTokens, Tensor, Tensor]:
    """Pack every distinct prompt once, and each response but for its last token.

    Returns:
        The packed tokens; which of them predicts each response token (K), rows after each other;
        and those response tokens (K).
    """
    device = response_BT.device
    distinct = {
        tuple(prompt): place for place, prompt in enumerate(dict.fromkeys(map(tuple, prompts)))
    }
    segments = [torch.tensor(prompt, device=device) for prompt in distinct]
    ends = torch.tensor([len(prompt) for prompt in distinct]).cumsum(0) - 1
    start = int(ends[-1]) + 1
    rows: list[tuple[int, ...]] = []
    predictors = []
    for prompt, response_T, length in zip(
        prompts, response_BT, mask_BT.sum(-1).tolist(), strict=True
    ):
        place = distinct[tuple(prompt)]
        predictors.append(ends[place : place + 1])
        if length > 1:
            rows.append((place, len(segments)))
            segments.append(response_T[: length - 1])
            predictors.append(start + torch.arange(length - 1))
            start += length - 1
        else:
            rows.append((place,))
    packed = pack_tokens(segments, rows, device)
    return packed, torch.cat(predictors).to(device), response_BT[mask_BT]


class ToRows(torch.autograd.Function):
    """Put tokens into their slots in the rows: (N, E) to (F, E)."""

    @staticmethod
    def forward(ctx: Any, token_NE: Tensor, rows: AttentionRows) -> Tensor:
        """Copy every token to each of its slots; the padding holds the first token."""
        ctx.rows = rows
        return token_NE.index_select(0, rows.index_F)

    @staticmethod
    def backward(ctx: Any, grad_FE: Tensor) -> tuple[Tensor, None]:
        """Gather each token's gradient, summed over its slots where it has several.

        No scatter-add: its order, and so its rounding, would change between runs on a GPU.
        """
        rows = ctx.rows
        grad_NE = grad_FE.index_select(0, rows.owner_N)
        if len(rows.shared_M):
            padded_FE = torch.cat([grad_FE, grad_FE.new_zeros(1, grad_FE.shape[1])])
            copies_MCE = padded_FE[rows.copies_MC]
            grad_NE.index_copy_(0, rows.shared_M, copies_MCE.sum(1).to(grad_NE.dtype))
        return grad_NE, None


class FromRows(torch.autograd.Function):
    """Take tokens back from their own slots in the rows: (F, E) to (N, E)."""

    @staticmethod
    def forward(ctx: Any, slot_FE: Tensor, rows: AttentionRows) -> Tensor:
        """Copy each token from its first slot."""
        ctx.rows = rows
        return slot_FE.index_select(0, rows.owner_N)

    @staticmethod
    def backward(ctx: Any, grad_NE: Tensor) -> tuple[Tensor, None]:
        """Put gradients where the tokens came from; every other slot gets 0."""
        rows = ctx.rows
        grad_FE = grad_NE.new_zeros(len(rows.index_F), grad_NE.shape[1])
        return grad_FE.index_copy_(0, rows.owner_N, grad_NE), None


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


def attend_cached(
    query: Tensor, key: Tensor, value: Tensor, cached: CachedLayer, scaling: float
) -> Tensor:
    """Write the new token's key and value, and attend with its query.

    Args:
        query: [R, K * n, 1, D].
        key: [R, K, 1, D].
        value: [R, K, 1, D].
        cached: the layer's cache.
        scaling: of the scores.

    Returns:
        [R, 1, K * n, D], in the dtype of ``value``.
    """
    if cached.row_PG is None or cached.slot_R is None:
        own = backend(query.device)
        return own.cached_attention(query, key, value, cached[:6], scaling).transpose(1, 2)
    return attend_in_blocks(query, key, value, cached, cached.row_PG, cached.slot_R, scaling)
