"""Choosing the next token: temperature, top-k, top-p, and one uniform number a token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How responses are drawn.

    ``temperature`` 0 takes the likeliest token. ``top_p`` 1 and ``top_k`` 0 leave the distribution
    whole, as RL needs. ``stop`` strings end a response once they have been produced; they stay
    part of it. ``max_tokens`` counts response tokens including EOS.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int = 512
    stop: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.temperature < 0:
            raise ValueError(f"temperature: {self.temperature} is negative; 0 is greedy, 1 samples")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p: {self.top_p} is not above 0 and at most 1")
        if self.top_k < 0:
            raise ValueError(f"top_k: {self.top_k} is negative; 0 keeps every token")
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens: {self.max_tokens} is not at least 1")
        if isinstance(self.stop, str) or any(not s for s in self.stop):
            raise ValueError(f"stop: {self.stop!r} is not a list of non-empty strings")


def choose(logits_BV: Tensor, uniform_B: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """Draw one token a row by inverting the distribution function at ``uniform_B`` in [0, 1).

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
        kept_BV = _keep(logits_BV, sampling)
        cdf_BV = kept_BV.double().softmax(-1).cumsum(-1)
        point_B1 = (uniform_B * cdf_BV[:, -1])[:, None]
        token_B = torch.searchsorted(cdf_BV, point_B1, right=True).squeeze(-1)
        token_B = token_B.clamp(max=logits_BV.shape[-1] - 1)
    logp_B = logits_BV.gather(-1, token_B[:, None]).squeeze(-1) - logits_BV.logsumexp(-1)
    return token_B, logp_B


def _keep(logits_BV: Tensor, sampling: Sampling) -> Tensor:
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
