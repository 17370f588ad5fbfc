"""Policies: loading any Hugging Face causal language model, and its log-probabilities."""

from r1lit.policy.attention import is_packed
from r1lit.policy.loading import context_length, load_config, load_policy, load_tokenizer
from r1lit.policy.logprobs import ResponseLogp, document_logp, response_logp

__all__ = [
    "ResponseLogp",
    "context_length",
    "document_logp",
    "is_packed",
    "load_config",
    "load_policy",
    "load_tokenizer",
    "response_logp",
]
