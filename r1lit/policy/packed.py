"""Packed tokens: sequences laid end to end with no padding, what they share laid once.

    N tokens laid   F places in the padded rows of attention   E features of one token

Everything that a transformer computes token by token runs over the N tokens. Attention alone needs
rows: there each row is put together again from its segments, rows of like length in one bucket,
padded on the right, under plain causal attention.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

FULL_ENOUGH = 0.8  # of a bucket's width that its shortest row fills


@dataclass(frozen=True, kw_only=True)
class PackedTokens:
    """N tokens, and the rows of attention that they make up.

    ``bucket_shapes`` are (rows, width) of each bucket; ``index_F`` says which token lies at each
    place of the buckets, one after another (0 in the padding). ``owner_N`` is the place of each
    token, its first if several rows share it; ``shared_M`` are the tokens that more than one row
    has, and ``copies_MC`` all their places, padded with F.
    """

    ids_N: Tensor
    position_N: Tensor
    bucket_shapes: tuple[tuple[int, int], ...]
    index_F: Tensor
    owner_N: Tensor
    shared_M: Tensor
    copies_MC: Tensor

    def __len__(self) -> int:
        return len(self.ids_N)


def pack_tokens(
    segments: Sequence[Tensor], rows: Sequence[Sequence[int]], device: torch.device | str = "cpu"
) -> PackedTokens:
    """Lay segments end to end, each once, for rows that are made up of one or more of them.

    Rows [0, 1] and [0, 2] over a prompt of 2 tokens and responses of 3 and 1::

        laid       p p a a a b        position   0 1 2 3 4 2
        rows       p p a a a
                   p p b . .

    Args:
        segments: token ids, each 1-D and of at least one token.
        rows: indices of segments. A segment begins at the same position in every row that has it.
        device: where the tensors shall lie.
    """
    lengths = [len(segment) for segment in segments]
    starts = [0, *accumulate(lengths)]
    row_lengths = [sum(lengths[s] for s in row) for row in rows]
    position_N = torch.zeros(starts[-1], dtype=torch.long)
    places: list[list[Tensor]] = [[] for _ in segments]
    index, shapes, taken = [], [], 0
    by_length = sorted(range(len(rows)), key=lambda row: -row_lengths[row])
    for bucket in _buckets(by_length, row_lengths):
        width = row_lengths[bucket[0]]
        shapes.append((len(bucket), width))
        index_rw = torch.zeros(len(bucket), width, dtype=torch.long)
        for place, row in enumerate(bucket):
            at = 0
            for segment in rows[row]:
                start, length = starts[segment], lengths[segment]
                steps = torch.arange(length)
                index_rw[place, at : at + length] = start + steps
                position_N[start : start + length] = at + steps
                places[segment].append(taken + place * width + at + steps)
                at += length
        index.append(index_rw.flatten())
        taken += index_rw.numel()
    shared = [s for s in range(len(segments)) if len(places[s]) > 1]
    most = max((len(places[s]) for s in shared), default=0)
    nowhere = torch.tensor(taken)
    return PackedTokens(
        ids_N=torch.cat(list(segments)).to(device),
        position_N=position_N.to(device),
        bucket_shapes=tuple(shapes),
        index_F=torch.cat(index).to(device),
        owner_N=torch.cat([places[s][0] for s in range(len(segments))]).to(device),
        shared_M=_joined([starts[s] + torch.arange(lengths[s]) for s in shared]).to(device),
        copies_MC=_joined(
            [
                torch.stack(
                    [*places[s], *[nowhere.expand(lengths[s])] * (most - len(places[s]))], -1
                )
                for s in shared
            ]
        ).to(device),
    )


def _buckets(by_length: Sequence[int], lengths: Sequence[int]) -> list[list[int]]:
    """Split rows, longest first, so that each fills ``FULL_ENOUGH`` of its bucket's width."""
    buckets: list[list[int]] = []
    for row in by_length:
        if not buckets or lengths[row] < FULL_ENOUGH * lengths[buckets[-1][0]]:
            buckets.append([])
        buckets[-1].append(row)
    return buckets


def _joined(parts: list[Tensor]) -> Tensor:
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.long)


def pack_responses(
    prompts: Sequence[Sequence[int]], response_BT: Tensor, mask_BT: Tensor
) -> tuple[PackedTokens, Tensor, Tensor]:
    """Lay every distinct prompt once, and each response but for its last token.

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
    """Lay the documents of packed rows that have targets, each up to what predicts its last one.

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
    """Put tokens at their places in the rows: (N, E) to (F, E)."""

    @staticmethod
    def forward(ctx: Any, token_NE: Tensor, packed: PackedTokens) -> Tensor:
        """Copy every token to each of its places; the padding holds the first token."""
        ctx.packed = packed
        return token_NE.index_select(0, packed.index_F)

    @staticmethod
    def backward(ctx: Any, grad_FE: Tensor) -> tuple[Tensor, None]:
        """Gather each token's gradient, summed over its places where it has several.

        No scatter-add: its order, and so its rounding, would change between runs on a GPU.
        """
        packed = ctx.packed
        grad_NE = grad_FE.index_select(0, packed.owner_N)
        if len(packed.shared_M):
            padded_FE = torch.cat([grad_FE, grad_FE.new_zeros(1, grad_FE.shape[1])])
            copies_MCE = padded_FE[packed.copies_MC]
            grad_NE.index_copy_(0, packed.shared_M, copies_MCE.sum(1))
        return grad_NE, None


class FromRows(torch.autograd.Function):
    """Take tokens back from their own places in the rows: (F, E) to (N, E)."""

    @staticmethod
    def forward(ctx: Any, place_FE: Tensor, packed: PackedTokens) -> Tensor:
        """Copy each token from its first place."""
        ctx.packed = packed
        return place_FE.index_select(0, packed.owner_N)

    @staticmethod
    def backward(ctx: Any, grad_NE: Tensor) -> tuple[Tensor, None]:
        """Put gradients where the tokens came from; every other place gets 0."""
        packed = ctx.packed
        grad_FE = grad_NE.new_zeros(len(packed.index_F), grad_NE.shape[1])
        return grad_FE.index_copy_(0, packed.owner_N, grad_NE), None
