"""Every objective, and one random ragged minibatch, for the properties that all of them share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from r1lit.objectives import (
    CISPO,
    DAPO,
    DPPO,
    GMPO,
    GRPO,
    GSPO,
    PPO,
    RLOO,
    SAPO,
    ClipCov,
    DrGRPO,
    GRPOSequence,
    GSPOToken,
    KLCov,
    LossInputs,
    Objective,
    PolicyGradient,
)

FACTORIES: dict[str, Callable[..., Objective]] = {
    "GRPO": GRPO,
    "GRPOSequence": lambda **kw: GRPOSequence(**{"epsilon": 0.2, **kw}),
    "DrGRPO": lambda **kw: DrGRPO(max_tokens=9, **kw),
    "DAPO": DAPO,
    "GSPO": lambda **kw: GSPO(**{"epsilon_low": 0.03, "epsilon_high": 0.04, **kw}),
    "CISPO": lambda **kw: CISPO(**{"epsilon_low": 0.2, "epsilon_high": 0.28, **kw}),
    "PPO": PPO,
    "ClipCov": ClipCov,
    "KLCov": KLCov,
    "GSPOToken": lambda **kw: GSPOToken(**{"epsilon_low": 0.03, "epsilon_high": 0.04, **kw}),
    "GMPO": GMPO,
    "SAPO": SAPO,
    "DPPO": DPPO,
    "DPPO, KL": lambda **kw: DPPO(divergence="kl", threshold=0.05, **kw),
    "PolicyGradient": PolicyGradient,
    "RLOO": RLOO,
}


@dataclass(frozen=True, kw_only=True)
class Minibatch:
    logp_BT: Tensor
    logp_old_BT: Tensor
    logp_ref_BT: Tensor
    advantage_BT: Tensor
    mask_BT: Tensor

    def __getitem__(self, rows: slice | list[int]) -> Minibatch:
        return Minibatch(**{name: value[rows] for name, value in vars(self).items()})

    def with_(self, **changes: Tensor) -> Minibatch:
        return replace(self, **changes)

    def inputs(self, totals: Minibatch | None = None, **changes: Any) -> LossInputs:
        """What an objective is given of these rows of the minibatch ``totals`` (itself)."""
        whole_BT = (self if totals is None else totals).mask_BT
        counts = {"num_rows": float(len(whole_BT)), "num_tokens": float(whole_BT.sum())}
        return LossInputs(**{**vars(self), **counts, **changes})


def loss_and_grad(
    objective: Objective, batch: Minibatch, totals: Minibatch | None = None
) -> tuple[Tensor, Tensor]:
    """Loss and gradient of ``batch`` as rows of the minibatch ``totals`` (itself by default)."""
    logp_BT = batch.logp_BT.clone().requires_grad_()
    loss = objective.loss(batch.inputs(totals, logp_BT=logp_BT)).loss
    loss.backward()
    assert logp_BT.grad is not None
    return loss.detach(), logp_BT.grad


def ragged_minibatch() -> Minibatch:
    """Six rows of up to five tokens, one of them empty, ratios on both sides of every clip."""
    g = torch.Generator().manual_seed(0)
    shape = (6, 5)
    logp_old_BT = -torch.rand(shape, generator=g, dtype=torch.float64) * 3 - 0.1
    lengths_B = torch.tensor([5, 3, 1, 4, 0, 2])
    return Minibatch(
        logp_BT=logp_old_BT + torch.randn(shape, generator=g, dtype=torch.float64) * 0.4,
        logp_old_BT=logp_old_BT,
        logp_ref_BT=logp_old_BT + torch.randn(shape, generator=g, dtype=torch.float64) * 0.4,
        advantage_BT=torch.tensor([1.5, -0.7, 0.9, -1.1, 0.4, -0.3], dtype=torch.float64)[
            :, None
        ].expand(shape),
        mask_BT=torch.arange(5)[None, :] < lengths_B[:, None],
    )
