"""Policies: loading any Hugging Face causal language model, and its log-probabilities."""

from r1lit.policy.loading import context_length, load_config, load_policy, load_tokenizer
from r1lit.policy.logprobs import ResponseLogits, response_logits

__all__ = [
    "ResponseLogits",
    "context_length",
    "load_config",
    "load_policy",
    "load_tokenizer",
    "response_logits",
]
