"""Loss aggregation: how much a token counts in its minibatch, the papers' three normalisers.

    B rows (responses)   T response tokens   |o| tokens of a response

Each function takes any rows of the minibatch and the totals of the whole of it, so that the weights
of a micro-batch are those it has in the minibatch.

Worked example, two responses of 1 and 3 tokens: per response (1/2) and (1/6, 1/6, 1/6); per token
1/4 each; per budget of 4 tokens 1/8 each.
"""

from __future__ import annotations

import torch
from torch import Tensor

from r1lit.objectives.masking import row_length_B1


def per_response_BT(mask_BT: Tensor, *, num_rows: float, dtype: torch.dtype, **_: float) -> Tensor:
    """Return 1 / (rows * |o|): every response counts alike, so a long one's tokens count less."""
    assert num_rows > 0, num_rows
    return mask_BT.to(dtype) / (num_rows * row_length_B1(mask_BT).to(dtype))


def per_token_BT(mask_BT: Tensor, *, num_tokens: float, dtype: torch.dtype, **_: float) -> Tensor:
    """Return 1 / tokens: every token of the minibatch counts alike."""
    assert num_tokens > 0, num_tokens
    return mask_BT.to(dtype) / num_tokens


def per_budget_BT(
    mask_BT: Tensor, *, num_rows: float, max_tokens: int, dtype: torch.dtype, **_: float
) -> Tensor:
    """Return 1 / (rows * max_tokens): every token counts alike, and alike in every minibatch."""
    assert num_rows > 0, num_rows
    return mask_BT.to(dtype) / (num_rows * max_tokens)
