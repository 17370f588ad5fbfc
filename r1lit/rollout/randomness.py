"""The uniform numbers of a rollout: a function of (seed, iteration, sample, token)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from r1lit.seeding import generator

BLOCK = 256


class Uniforms:
    """Serves one number in [0, 1) for each row and token, made in blocks of 256 tokens.

    ``samples`` are the rows' indices within the iteration; a row's numbers depend on its own index
    alone, not on which other rows are there.
    """

    def __init__(
        self, seed: int, iteration: int, samples: Sequence[int], device: torch.device
    ) -> None:
        self._name = (seed, iteration)
        self._samples = samples
        self._device = device
        self._block = -1
        self._block_BT = torch.empty(0)

    def at(self, token: int, rows: Tensor) -> Tensor:
        """Return the numbers for the response token at index ``token`` of ``rows``."""
        if token // BLOCK != self._block:
            self._block = token // BLOCK
            seed, iteration = self._name
            numbers = np.stack(
                [
                    generator(seed, "sample", iteration, sample, self._block).random(BLOCK)
                    for sample in self._samples
                ]
            )
            self._block_BT = torch.from_numpy(numbers).to(self._device)
        return self._block_BT[rows, token % BLOCK]
