"""Logits of a model without packed attention, from rows padded on the right.

B rows of T response tokens   K predicted tokens   V vocabulary   N packed tokens
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from r1lit.policy.attention import PackedTokens


def document_logits(model: Any, packed: PackedTokens, predictor_K: Tensor) -> Tensor:
    """Return the logits ``[K, V]`` of documents, each in a row of its own.

    Rows are padded on the right, those of like length in one call: nothing can run from one
    document into the next, whatever the architecture's layers make of positions.
    """
    rows = packed.in_buckets
    sizes = [num_rows * width for num_rows, width in rows.bucket_shapes]
    slot_K, start = rows.owner_N[predictor_K], 0
    logits = []
    for size, shape, index in zip(
        sizes, rows.bucket_shapes, rows.index_F.split(sizes), strict=True
    ):
        logits_FV = model(input_ids=packed.ids_N[index].view(shape), use_cache=False).logits
        here_K = (slot_K >= start) & (slot_K < start + size)
        logits.append((here_K, logits_FV.flatten(0, 1)[slot_K[here_K] - start]))
        start += size
    order_K = torch.cat([here_K.nonzero().squeeze(-1) for here_K, _ in logits])
    return torch.cat([logits_kV for _, logits_kV in logits])[order_K.argsort()]


def response_logits(
    model: Any, prompts: Sequence[Sequence[int]], response_BT: Tensor, lengths: Sequence[int]
) -> Tensor:
    """Return the logits that predict each response token, ``[B, T, V]``.

    Rows are padded on the right only, to the longest, so causal attention needs no padding
    mask. Logits are kept from the shortest prompt's last token on.
    """
    rows, width = response_BT.shape
    starts_B = torch.tensor([len(prompt) for prompt in prompts], device=response_BT.device)
    shortest = int(starts_B.min())
    whole = max(len(prompt) + n for prompt, n in zip(prompts, lengths, strict=True))
    # any token but the padding one, which some models would warn of
    ids = response_BT.new_full((rows, whole), int(response_BT[0, 0]))
    for row, (prompt, n) in enumerate(zip(prompts, lengths, strict=True)):
        ids[row, : len(prompt)] = torch.tensor(prompt, device=ids.device)
        ids[row, len(prompt) : len(prompt) + n] = response_BT[row, :n]
    keep = whole - (shortest - 1)
    if "logits_to_keep" in inspect.signature(model.forward).parameters:
        logits_BKV = model(input_ids=ids, use_cache=False, logits_to_keep=keep).logits
    else:
        logits_BKV = model(input_ids=ids, use_cache=False).logits[:, -keep:]
    place_BT = (starts_B - shortest)[:, None] + torch.arange(width, device=ids.device)
    index = place_BT.clamp(max=keep - 1)[..., None].expand(-1, -1, logits_BKV.shape[-1])
    return logits_BKV.gather(1, index)
