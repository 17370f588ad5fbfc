"""What an iteration's updates say of themselves, over the tokens that they were computed on."""

from __future__ import annotations

import math
from collections import defaultdict

import torch
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor

from r1lit.objectives import LossInputs
from r1lit.objectives.terms import masked_sum, mismatch_sums

LARGE_MISMATCH = 0.05  # nats; float32 has 1e-6, bfloat16 some 1e-3


class UpdateMetrics:
    """Adds up sums over tokens across micro-batches, on the device; they are read once.

    Args:
        same_weights: whether the sampler had the trainer's, so that a large mismatch is a fault.
    """

    def __init__(self, same_weights: bool = True) -> None:
        self._same_weights = same_weights
        self._sums: dict[str, Tensor] = defaultdict(lambda: torch.tensor(0.0, dtype=torch.float64))
        self._max_abs = torch.tensor(0.0)

    @torch.no_grad()
    def add(self, sums: dict[str, Tensor], inputs: LossInputs, entropy_BT: Tensor) -> None:
        """Add a micro-batch's metrics, ``LossOutputs.metrics`` among them."""
        sums = sums | {
            "entropy": masked_sum(entropy_BT, inputs.mask_BT),
            "tokens": inputs.mask_BT.sum(),
        }
        self._add(sums)

    @torch.no_grad()
    def add_mismatch(self, logp_BT: Tensor, logp_sampler_BT: Tensor, mask_BT: Tensor) -> None:
        """Add a micro-batch computed before the iteration's first update."""
        sums = mismatch_sums(logp_BT, logp_sampler_BT, mask_BT)
        largest = sums.pop("max_abs")
        self._max_abs = torch.maximum(self._max_abs.to(largest.device), largest)
        self._add({f"mismatch/{name}": value for name, value in sums.items()})
        self._add({"mismatch/tokens": mask_BT.sum()})

    def _add(self, sums: dict[str, Tensor]) -> None:
        for name, value in sums.items():
            self._sums[name] = self._sums[name].to(value.device) + value.double()

    def metrics(self) -> dict[str, float]:
        """Return the means over tokens, under their logged names; NaN where no token counted."""
        names = list(self._sums)
        values = torch.stack([self._sums[n] for n in names]).tolist() if names else []
        sums = dict(zip(names, values, strict=True))
        num_tokens = sums.pop("tokens", 0.0) or math.nan
        num_compared = sums.pop("mismatch/tokens", 0.0) or math.nan
        mismatch = {
            name: sums.pop(f"mismatch/{name}", 0.0) / num_compared
            for name in ("abs", "k3", "outside", "rho", "rho_squared")
        }
        if self._same_weights and mismatch["abs"] > LARGE_MISMATCH:
            rank_zero_warn(
                f"train/mismatch/mean_abs is above {LARGE_MISMATCH}: the log-probs of the rollout,"
                " which stand for the old policy, are not those of the training forward; set the"
                " trainer's precision or the model's dtype higher"
            )
        return {
            **{f"train/{name}": total / num_tokens for name, total in sums.items()},
            "train/mismatch/mean_abs": mismatch["abs"],
            "train/mismatch/max_abs": float(self._max_abs) if num_compared > 0 else math.nan,
            "train/mismatch/k3_kl": mismatch["k3"],
            "train/mismatch/share_outside": mismatch["outside"],
            "train/mismatch/effective_sample_size": mismatch["rho"] ** 2 / mismatch["rho_squared"],
        }
