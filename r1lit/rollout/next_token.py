"""Sampling of the next token from logits.

B rows   V vocabulary   N blocks of the vocabulary, of K tokens each
"""

from __future__ import annotations

import torch
from torch import Tensor

from r1lit.device import cumulative_sum
from r1lit.rollout.sampling import Sampling

BLOCK = 256  # tokens of the vocabulary whose probabilities are added up together


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


def sample_with_candidates(
    logits_BV: Tensor, uniform_B: Tensor, sampling: Sampling
) -> tuple[Tensor, Tensor, Tensor]:
    """Sample as ``sample_tokens``; return also which tokens top-k and top-p left, ``[B, V]``.

    The log-prob is that among these candidates (DeepSeek-V3.2 2512.02556, "Keep Sampling Mask").
    """
    logits_BV = logits_BV.float()
    if sampling.temperature not in (0, 1):
        logits_BV = logits_BV / sampling.temperature
    logits_BV = _mask_top_k_top_p(logits_BV, sampling)
    token_B = logits_BV.argmax(-1)
    if sampling.temperature:
        token_B = _inverse_cdf(logits_BV, uniform_B)
    logp_B = logits_BV.gather(-1, token_B[:, None]).squeeze(-1) - logits_BV.logsumexp(-1)
    return token_B, logp_B, logits_BV > float("-inf")


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
    below_BN = cumulative_sum(weight_BNK.sum(-1).double())
    point_B1 = uniform_B[:, None] * below_BN[:, -1:]
    block_B1 = _first_above(below_BN, point_B1)
    rest_B1 = point_B1 - below_BN.gather(-1, (block_B1 - 1).clamp(min=0)) * (block_B1 > 0)
    within_BK = weight_BNK.gather(1, block_B1[..., None].expand(-1, 1, BLOCK)).squeeze(1)
    token_B1 = _first_above(cumulative_sum(within_BK.double()), rest_B1)
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
        drop_BV = cumulative_sum(probability_BV) - probability_BV >= sampling.top_p
        drop_BV = torch.zeros_like(drop_BV).scatter(-1, order_BV, drop_BV)
        logits_BV = logits_BV.masked_fill(drop_BV, float("-inf"))
    return logits_BV
