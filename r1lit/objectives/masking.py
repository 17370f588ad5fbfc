"""Padding out of sight: what stands where ``mask_BT`` is false must not matter.

    B rows   T response tokens   B1 one number a row, kept as a column

Values are replaced by ``torch.where`` *before* any ``exp``: a NaN multiplied by 0 is still a NaN,
and so is its gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor


def hide_padding(value_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Return ``value_BT`` with 0 where the mask is false; the gradient there is exactly 0."""
    return torch.where(mask_BT, value_BT, 0.0)


def row_sum_B1(value_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Return the sum over each response."""
    return hide_padding(value_BT, mask_BT).sum(1, keepdim=True)


def row_length_B1(mask_BT: Tensor) -> Tensor:
    """Return ``|o_i|``, the tokens of each response; 1 for an empty one, which then weighs 0."""
    return mask_BT.sum(1, keepdim=True).clamp(min=1)
