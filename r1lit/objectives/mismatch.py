"""Distance of the trainer's log-probs from the sampler's, over an iteration's tokens."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from r1lit.objectives.terms import mismatch_sums
from r1lit.ranks import warn_on_first_rank

LARGE_MISMATCH = 0.05  # nats; float32 has 1e-6, bfloat16 some 1e-3
MEANS = ("abs", "k3", "outside", "rho", "rho_squared")
MISMATCH_METRICS = tuple(
    f"train/mismatch/{name}"
    for name in ("mean_abs", "max_abs", "k3_kl", "share_outside", "effective_sample_size")
)
"""Names of the metrics; a step that recomputes old log-probs logs them, else the first update."""


class Mismatch:
    """Adds up sums over tokens, on the device; they are read once."""

    def __init__(self) -> None:
        zero = torch.tensor(0.0, dtype=torch.float64)
        self._sums = dict.fromkeys((*MEANS, "tokens"), zero)
        self._max_abs = torch.tensor(0.0)

    @torch.no_grad()
    def add(self, logp_BT: Tensor, logp_sampler_BT: Tensor, mask_BT: Tensor) -> None:
        """Add rows whose log-probs are of the weights before the iteration's first update."""
        sums = mismatch_sums(logp_BT, logp_sampler_BT, mask_BT)
        largest = sums.pop("max_abs")
        self._max_abs = torch.maximum(self._max_abs.to(largest.device), largest)
        for name, value in (sums | {"tokens": mask_BT.sum()}).items():
            self._sums[name] = self._sums[name].to(value.device) + value.double()

    def metrics(self, *, same_weights: bool) -> dict[str, float]:
        """Return the means over tokens, under their logged names; NaN where no token counted.

        Args:
            same_weights: whether the sampler had the trainer's, so that a large one is a fault.
        """
        values = torch.stack([*self._sums.values()]).tolist()
        sums = dict(zip(self._sums, values, strict=True))
        num_tokens = sums.pop("tokens") or math.nan
        mean = {name: total / num_tokens for name, total in sums.items()}
        if same_weights and mean["abs"] > LARGE_MISMATCH:
            warn_on_first_rank(
                f"train/mismatch/mean_abs is above {LARGE_MISMATCH}: the log-probs of the rollout,"
                " which are used as the old policy's, differ from those of the training forward;"
                " set the trainer's precision or the model's dtype higher"
            )
        largest = float(self._max_abs) if num_tokens > 0 else math.nan
        sample_size = mean["rho"] ** 2 / mean["rho_squared"]
        logged = (mean["abs"], largest, mean["k3"], mean["outside"], sample_size)
        return dict(zip(MISMATCH_METRICS, logged, strict=True))
