"""What an objective's loss is computed from, and what it returns.

B rows (responses)   T response tokens
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class LossInputs:
    """Rows of a minibatch, as passed to an objective.

    ``mask_BT`` is true at the tokens that count; what stands elsewhere may be anything, NaN too.
    Log-probs should be float32 or wider: a ratio is the exponential of a difference of two of them.
    ``logp_ref_BT`` is needed where ``beta`` is above 0. ``correction_BT`` weighs the surrogate for
    the mismatch of sampler and trainer (``r1lit.objectives.corrections``). ``logp_sampler_BT`` are
    the log-probs as sampled, ``logp_old_BT`` where they are None.

    ``is_right_B`` marks the right responses, and is needed where ``positive_nll`` is above 0.
    ``entropy_BT`` are the policy's entropies with their gradient, needed for an ``EntropyBonus``.
    ``is_selected_BT`` is the result of ``Objective.select_N``; None selects no token.

    ``num_rows``, ``num_tokens`` and ``num_right_tokens`` are the whole minibatch's. Under DDP,
    which averages gradients over ranks, they are means over ranks: the averaged gradient is then
    the global minibatch's.
    """

    logp_BT: Tensor
    logp_old_BT: Tensor
    advantage_BT: Tensor
    mask_BT: Tensor
    num_rows: float
    num_tokens: float
    logp_ref_BT: Tensor | None = None
    correction_BT: Tensor | None = None
    is_right_B: Tensor | None = None
    num_right_tokens: float = 1.0
    is_selected_BT: Tensor | None = None
    logp_sampler_BT: Tensor | None = None
    entropy_BT: Tensor | None = None

    def __post_init__(self) -> None:
        shape = self.mask_BT.shape
        assert self.mask_BT.dtype == torch.bool and self.mask_BT.ndim == 2, shape
        for tensor in (self.logp_BT, self.logp_old_BT, self.advantage_BT):
            assert tensor.shape == shape, (tensor.shape, shape)
        optionals = self.logp_ref_BT, self.correction_BT, self.is_selected_BT, self.logp_sampler_BT
        for optional in optionals:
            assert optional is None or optional.shape == shape, (optional.shape, shape)


@dataclass(frozen=True, kw_only=True)
class LossOutputs:
    """A loss, and metrics by name as sums over the tokens that count (no gradient, on the device).

    Sums of micro-batches add up to the minibatch's; divide by its number of tokens once.
    """

    loss: Tensor
    metrics: Mapping[str, Tensor]
