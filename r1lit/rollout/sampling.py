"""Sampling the next token: temperature, top-k, top-p, and one uniform number a token.

B rows   V vocabulary   N blocks of the vocabulary, of K tokens each
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from r1lit.errors import check_at_least
from r1lit.seeding import generator

BLOCK = 256  # tokens of the vocabulary whose probabilities are added up together


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How responses are sampled.

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
        if self.temperature < 0:
            raise ValueError(f"temperature: {self.temperature} is negative; 0 is greedy, 1 samples")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p: {self.top_p} is not above 0 and at most 1")
        if self.top_k < 0:
            raise ValueError(f"top_k: {self.top_k} is negative; 0 keeps every token")
        check_at_least("max_tokens", self.max_tokens, 1)
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)
        if any(not s for s in stop):
            raise ValueError(f"stop: {self.stop!r} is not a list of non-empty strings")
        object.__setattr__(self, "stop", stop)  # hashable

    def check_fits(self, prompt_tokens: int, context: int | None) -> None:
        """Check that the longest response fits into the context behind the longest prompt.

        Raises:
            ValueError: naming ``max_tokens`` and how many fit.
        """
        if context is not None and prompt_tokens + self.max_tokens > context:
            raise ValueError(
                f"max_tokens: {self.max_tokens} after a prompt of {prompt_tokens} tokens exceeds"
                f" the policy's context of {context}; at most {context - prompt_tokens} fit"
            )


def sample_tokens(
    logits_BV: Tensor, uniform_B: Tensor, sampling: Sampling
) -> tuple[Tensor, Tensor]:
    """Sample one token a row by inverting the distribution function at ``uniform_B`` in [0, 1).

    The log-prob returned is that of the whole distribution at the temperature, before top-k and
    top-p, which is what the training forward computes.

    Returns:
        Tokens ``token_B`` and log-probs ``logp_B``.
    """
    logits_BV = logits_BV.float()
    if sampling.temperature == 0:
        token_B = logits_BV.argmax(-1)
    else:
        if sampling.temperature != 1:
            logits_BV = logits_BV / sampling.temperature
        token_B = _inverse_cdf(_mask_top_k_top_p(logits_BV, sampling), uniform_B)
    logp_B = logits_BV.gather(-1, token_B[:, None]).squeeze(-1) - logits_BV.logsumexp(-1)
    return token_B, logp_B


def _inverse_cdf(logits_BV: Tensor, uniform_B: Tensor) -> Tensor:
    """Return the first token at which the distribution function exceeds ``uniform_B``.

    First the block of tokens, then the token within it: only sums of blocks and one block a row
    are added up in float64, and no vocabulary is sorted.
    """
    rows, vocabulary = logits_BV.shape
    weight_BV = (logits_BV - logits_BV.amax(-1, keepdim=True)).exp()
    num_blocks = -(-vocabulary // BLOCK)
    weight_BNK = torch.nn.functional.pad(weight_BV, (0, num_blocks * BLOCK - vocabulary)).view(
        rows, num_blocks, BLOCK
    )
    below_BN = weight_BNK.sum(-1).double().cumsum(-1)
    point_B1 = uniform_B[:, None] * below_BN[:, -1:]
    block_B1 = _first_above(below_BN, point_B1)
    rest_B1 = point_B1 - below_BN.gather(-1, (block_B1 - 1).clamp(min=0)) * (block_B1 > 0)
    within_BK = weight_BNK.gather(1, block_B1[..., None].expand(-1, 1, BLOCK)).squeeze(1)
    token_B1 = _first_above(within_BK.double().cumsum(-1), rest_B1)
    return (block_B1 * BLOCK + token_B1).squeeze(-1)


def _first_above(below_BN: Tensor, point_B1: Tensor) -> Tensor:
    """Return the index of the first sum above ``point_B1``, or of the last that adds anything."""
    last_B1 = (below_BN < below_BN[:, -1:]).sum(-1, keepdim=True)
    return torch.minimum((below_BN <= point_B1).sum(-1, keepdim=True), last_B1)


def _mask_top_k_top_p(logits_BV: Tensor, sampling: Sampling) -> Tensor:
    """Set to -inf what top-k, then top-p, leave out. The likeliest token always stays."""
    if sampling.top_k and sampling.top_k < logits_BV.shape[-1]:
        smallest_B1 = logits_BV.topk(sampling.top_k, dim=-1).values[:, -1:]
        logits_BV = logits_BV.masked_fill(logits_BV < smallest_B1, float("-inf"))
    if sampling.top_p < 1:
        sorted_BV, order_BV = logits_BV.sort(stable=True, dim=-1, descending=True)
        probability_BV = sorted_BV.softmax(-1)
        drop_BV = probability_BV.cumsum(-1) - probability_BV >= sampling.top_p
        drop_BV = torch.zeros_like(drop_BV).scatter(-1, order_BV, drop_BV)
        logits_BV = logits_BV.masked_fill(drop_BV, float("-inf"))
    return logits_BV


UNIFORM_BLOCK = 256


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
