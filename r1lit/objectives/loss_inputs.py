"""Inputs of an objective's loss, and its results.

B rows (responses)   T response tokens
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

SELECTED = "selected_BT"
"""The name of ``extra_BT`` of the tokens that an objective treats apart."""


@dataclass(frozen=True, kw_only=True)
class LossInputs:
    """Rows of a minibatch, as passed to an objective.

    ``mask_BT`` is true at the tokens that count; what stands elsewhere may be anything, NaN too.
    Log-probs should be float32 or wider: a ratio is the exponential of a difference of two of them.
    ``logp_ref_BT`` is needed where ``beta`` is above 0. ``weight_BT`` weighs the surrogate, such as
    for the mismatch of sampler and trainer (``r1lit.steps.Correction``). ``logp_sampler_BT`` are
    the log-probs as sampled, ``logp_old_BT`` where they are None. ``entropy_BT`` are the policy's
    entropies, with their gradient where a term reads it.

    ``extra_BT`` is ``Rollout.extra_BT`` of these rows; its ``SELECTED`` is the result of
    ``Objective.select_tokens``, and no token is selected where it is missing.

    ``num_rows`` and ``num_tokens`` are the whole minibatch's. Under DDP, which averages gradients
    over ranks, they are means over ranks: the averaged gradient is then the global minibatch's.
    """

    logp_BT: Tensor
    logp_old_BT: Tensor
    advantage_BT: Tensor
    mask_BT: Tensor
    num_rows: float
    num_tokens: float
    logp_ref_BT: Tensor | None = None
    weight_BT: Tensor | None = None
    logp_sampler_BT: Tensor | None = None
    entropy_BT: Tensor | None = None
    extra_BT: Mapping[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shape = self.mask_BT.shape
        assert self.mask_BT.dtype == torch.bool and self.mask_BT.ndim == 2, shape
        for tensor in (self.logp_BT, self.logp_old_BT, self.advantage_BT):
            assert tensor.shape == shape, (tensor.shape, shape)
        optionals = self.logp_ref_BT, self.weight_BT, self.logp_sampler_BT
        for optional in (*optionals, *self.extra_BT.values()):
            assert optional is None or optional.shape == shape, (optional.shape, shape)


@dataclass(frozen=True, kw_only=True)
class LossOutputs:
    """A loss, and metrics by name as sums over the tokens that count (no gradient, on the device).

    Sums of micro-batches add up to the minibatch's; divide by its number of tokens once.
    """

    loss: Tensor
    metrics: Mapping[str, Tensor]
