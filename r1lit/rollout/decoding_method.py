"""The way a policy is decoded: with shared prompts, or by Hugging Face's cache."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Literal

import torch

from r1lit.policy import Policy, is_packed
from r1lit.policy.support import trial
from r1lit.rollout.decoding import CachedDecoding, Decoding, find_decoding_error
from r1lit.rollout.shared_prompts import (
    Decoder,
    SharedPromptDecoding,
    compute_dtype,
    run_layer,
)

DecodingMethod = Literal["shared", "cached", "uncached"]


def find_decoding_method(policy: Policy) -> DecodingMethod:
    """Return the fastest method whose log-probs are a plain forward pass's; warn if it is slow."""
    name = f"policy: {type(policy.model).__name__} decodes"
    if is_packed(policy):
        reason = find_shared_prompt_error(policy)
        if reason is None:
            return "shared"
    else:
        reason = ""
    with trial(policy):
        cached = find_decoding_error(policy, partial(CachedDecoding, policy, pad=0))
    if cached is not None:
        warnings.warn(
            f"{name} without a cache, each token after a forward pass over its whole row, which is"
            f" far slower: with Hugging Face's caches, {cached}",
            stacklevel=2,
        )
        return "uncached"
    if reason:
        warnings.warn(
            f"{name} with Hugging Face's caches, which is slower than over shared prompts:"
            f" {reason}",
            stacklevel=2,
        )
    return "cached"


def find_shared_prompt_error(policy: Policy) -> str | None:
    """Try whether decoding over shared prompts gives the policy's own log-probs.

    It is judged in float32, and then in the compute dtype as far as rounding lets one judge.

    Returns:
        None if it does, otherwise what went wrong.
    """

    def decoding_of(dtype: torch.dtype, cast: bool) -> Callable[..., Decoding]:
        return lambda prompts, group_size: SharedPromptDecoding(
            Decoder(policy, dtype, run_layer, cast=cast), prompts, group_size
        )

    dtype = compute_dtype(policy)
    with trial(policy):
        reason = find_decoding_error(policy, decoding_of(torch.float32, cast=False))
    if reason is None and dtype != torch.float32:
        reason = find_decoding_error(policy, decoding_of(dtype, cast=True), exact=False)
    return reason
