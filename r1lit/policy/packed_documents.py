"""Documents packed into one row of tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from r1lit.policy.attention import PackedTokens, pack_tokens


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
