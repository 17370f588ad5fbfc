"""Settings of sampling, and the random number that samples each token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from r1lit.errors import check_at_least
from r1lit.seeding import generator


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Settings of sampling.

    ``temperature`` 0 takes the likeliest token. ``top_p`` 1 and ``top_k`` 0 leave the distribution
    whole, as RL needs. ``stop``, a text or several, ends a response once it has been produced;
    it stays part of it. ``max_tokens`` counts response tokens including EOS.

    Args:
        temperature: divides the logits; 0 takes the likeliest token.
        top_p: sample from the likeliest tokens that together have this probability; 1 takes
            all.
        top_k: sample from that many of the likeliest tokens; 0 takes all.
        max_tokens: the most tokens of a response, EOS included.
        stop: a text or several that end a response; they stay part of it.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int = 512
    stop: str | Sequence[str] = ()

    def __post_init__(self) -> None:
        check_at_least("temperature", self.temperature, 0, "0 is greedy, 1 samples")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p: {self.top_p} is not above 0 and at most 1")
        check_at_least("top_k", self.top_k, 0, "0 keeps every token")
        check_at_least("max_tokens", self.max_tokens, 1)
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)
        if any(not s for s in stop):
            raise ValueError(f"stop: {self.stop!r} is not a list of non-empty strings")
        object.__setattr__(self, "stop", stop)  # hashable

    @property
    def cuts(self) -> dict[str, float]:
        """The keys that leave tokens out, with their values."""
        keys = {"top_p": self.top_p < 1, "top_k": self.top_k > 0}
        return {key: getattr(self, key) for key, cut in keys.items() if cut}

    def check_context(self, prompt_tokens: int, context: int | None) -> None:
        """Check that the longest response fits into the context behind the longest prompt.

        Raises:
            ValueError: naming ``max_tokens`` and how many fit.
        """
        if context is not None and prompt_tokens + self.max_tokens > context:
            raise ValueError(
                f"max_tokens: {self.max_tokens} after a prompt of {prompt_tokens} tokens exceeds"
                f" the policy's context of {context}; at most {context - prompt_tokens} fit"
            )


UNIFORM_BLOCK = 256


class SamplingNumbers:
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
        if token // UNIFORM_BLOCK != self._block:
            self._block = token // UNIFORM_BLOCK
            seed, iteration = self._name
            numbers = np.stack(
                [
                    generator(seed, "sample", iteration, sample, self._block).random(UNIFORM_BLOCK)
                    for sample in self._samples
                ]
            )
            self._block_BT = torch.from_numpy(numbers).to(self._device)
        return self._block_BT[rows, token % UNIFORM_BLOCK]
