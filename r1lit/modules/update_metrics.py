"""Watching an iteration's updates: what the objective's arguments say while it is maximised."""

from __future__ import annotations

from collections import defaultdict

import torch
from torch import Tensor

from r1lit.objectives import Objective
from r1lit.objectives.diagnostics import (
    approx_kl_BT,
    logp_mismatch,
    masked_sum,
    reference_kl_BT,
)


class UpdateMetrics:
    """Adds up sums over tokens across micro-batches, and divides once."""

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self._sums: dict[str, float] = defaultdict(float)
        self._tokens: dict[str, float] = defaultdict(float)
        self._mismatch_max = 0.0

    @torch.no_grad()
    def add(
        self,
        *,
        logp_BT: Tensor,
        entropy_BT: Tensor,
        logp_old_BT: Tensor,
        logp_ref_BT: Tensor | None,
        advantage_B: Tensor,
        mask_BT: Tensor,
        before_update: bool,
    ) -> None:
        """Add a micro-batch; the mismatch counts ``before_update`` only: the sampler's weights."""
        acts_BT = self.objective.clip_acts_BT(
            logp_BT=logp_BT, logp_old_BT=logp_old_BT, advantage_B=advantage_B, mask_BT=mask_BT
        )
        self._count("clip_fraction", acts_BT.float(), mask_BT)
        self._count("approx_kl_old", approx_kl_BT(logp_BT, logp_old_BT, mask_BT), mask_BT)
        self._count("entropy", entropy_BT, mask_BT)
        if logp_ref_BT is not None:
            self._count("kl_reference", reference_kl_BT(logp_BT, logp_ref_BT, mask_BT), mask_BT)
        if before_update:
            self._count("mismatch/mean_abs", (logp_BT - logp_old_BT).abs(), mask_BT)
            largest = float(logp_mismatch(logp_BT, logp_old_BT, mask_BT)["max_abs"])
            self._mismatch_max = max(self._mismatch_max, largest)

    def _count(self, name: str, value_BT: Tensor, mask_BT: Tensor) -> None:
        self._sums[name] += float(masked_sum(value_BT, mask_BT))
        self._tokens[name] += float(mask_BT.sum())

    def metrics(self) -> dict[str, float]:
        """Return the means over tokens, under their logged names."""
        means = {f"train/{name}": total / self._tokens[name] for name, total in self._sums.items()}
        return {**means, "train/mismatch/max_abs": self._mismatch_max}
