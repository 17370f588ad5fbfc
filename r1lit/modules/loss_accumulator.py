"""The parts of a loss, added up across micro-batches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from torch import Tensor


class LossAccumulator:
    """Takes the loss out of what a micro-batch computes, and adds up the rest of it."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = defaultdict(float)

    def share(self, losses_of: Callable[[], dict[str, Tensor]], num_tokens: float) -> Tensor:
        """Return a micro-batch's ``loss`` over the whole number of tokens."""
        losses = losses_of()
        for name, value in losses.items():
            if name != "loss":
                self._sums[name] += value.detach().item()
        return losses["loss"] / num_tokens

    def metrics(self, stage: str, num_tokens: float) -> dict[str, float]:
        """Return each other part's mean over tokens, under its logged name."""
        return {f"{stage}/{name}": total / num_tokens for name, total in self._sums.items()}
