"""Losses of documents, added up over micro-batches."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor


class LossAccumulator:
    """Takes the loss out of what a micro-batch computes, and adds up the rest on the device."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}

    def share(self, losses_of: Callable[[], dict[str, Tensor]], num_tokens: float) -> Tensor:
        """Return a micro-batch's ``loss`` over the whole number of tokens."""
        losses = losses_of()
        for name, value in losses.items():
            if name != "loss":
                total = value.detach().double()
                self._sums[name] = self._sums[name] + total if name in self._sums else total
        return losses["loss"] / num_tokens

    def metrics(self, stage: str, num_tokens: float) -> dict[str, float]:
        """Return each other part's mean over tokens, under its logged name."""
        return {f"{stage}/{name}": float(total) / num_tokens for name, total in self._sums.items()}
