"""What an iteration's updates say of themselves, over the tokens that they were computed on."""

from __future__ import annotations

from collections import defaultdict

import torch
from torch import Tensor

from r1lit.objectives import LossInputs
from r1lit.objectives.diagnostics import masked_sum, mismatch_sums


class UpdateMetrics:
    """Adds up sums over tokens across micro-batches, on the device; they are read once."""

    def __init__(self) -> None:
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
        """Add a micro-batch computed with the weights that sampled it."""
        sums = mismatch_sums(logp_BT, logp_sampler_BT, mask_BT)
        largest = sums.pop("max_abs")
        self._max_abs = torch.maximum(self._max_abs.to(largest.device), largest)
        self._add({f"mismatch/{name}": value for name, value in sums.items()})
        self._add({"mismatch/tokens": mask_BT.sum()})

    def _add(self, sums: dict[str, Tensor]) -> None:
        for name, value in sums.items():
            self._sums[name] = self._sums[name].to(value.device) + value.double()

    def metrics(self) -> dict[str, float]:
        """Return the means over tokens, under their logged names."""
        names = list(self._sums)
        sums = dict(zip(names, torch.stack([self._sums[n] for n in names]).tolist(), strict=True))
        num_tokens = max(sums.pop("tokens"), 1.0)
        rho, rho_squared = sums.pop("mismatch/rho", 0.0), sums.pop("mismatch/rho_squared", 0.0)
        num_compared = max(sums.pop("mismatch/tokens", 0.0), 1.0)
        mismatch = {
            n: sums.pop(f"mismatch/{n}", 0.0) / num_compared for n in ("abs", "k3", "outside")
        }
        return {
            **{f"train/{name}": total / num_tokens for name, total in sums.items()},
            "train/mismatch/mean_abs": mismatch["abs"],
            "train/mismatch/max_abs": float(self._max_abs),
            "train/mismatch/k3_kl": mismatch["k3"],
            "train/mismatch/share_outside": mismatch["outside"],
            "train/mismatch/effective_sample_size": rho**2 / (num_compared * rho_squared)
            if rho_squared
            else 1.0,
        }
