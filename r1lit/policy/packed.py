"""Packed (varlen) tokens: sequences end to end without padding, what they share once.

    N packed tokens   F slots in the rows of attention   R rows   E features of one token
    M tokens that several rows share   C slots of such a token, at most
    B responses of T tokens   L tokens of a row of documents

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

FULL_ENOUGH = 0.8  # of a bucket's width that its shortest row fills


@dataclass(frozen=True, kw_only=True)
class AttentionRows:
    """Which token lies in which slot of the rows of attention, longest row first.

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


def pack_documents(
    input_ids_RL: Tensor, position_ids_RL: Tensor, loss_mask_RL: Tensor
) -> tuple[PackedTokens, Tensor]:
    """Pack the documents that have targets, each up to what predicts its last one.

    Returns:
        The packed tokens, and which of them predicts each target (K).
    """
    ids, target = input_ids_RL.flatten(), loss_mask_RL.flatten().cpu()
    starts = (position_ids_RL.flatten() == 0).nonzero().flatten().tolist()
    segments, predictors, taken = [], [], 0
    for start, stop in zip(starts, [*starts[1:], len(ids)], strict=True):
        targets = target[start:stop].nonzero().flatten()
        if len(targets):
            last = int(targets[-1])
            segments.append(ids[start : start + last])
            predictors.append(taken + targets - 1)
            taken += last
    if not segments:
        segments.append(ids[:1])
        predictors.append(target.new_zeros(0, dtype=torch.long))
    packed = pack_tokens(segments, [[s] for s in range(len(segments))], ids.device)
    return packed, torch.cat(predictors).to(ids.device)


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
            grad_NE.index_copy_(0, rows.shared_M, copies_MCE.sum(1))
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
