"""Policies and teachers: any Hugging Face causal language model, and its log-probabilities."""

from r1lit.policy.attention import is_packed
from r1lit.policy.loading import (
    context_length,
    load_config,
    load_policy,
    load_tokenizer,
    refuse_leaking,
)
from r1lit.policy.logprobs import (
    Predictions,
    ResponseLogp,
    document_predictions,
    response_logp,
    response_predictions,
)
from r1lit.policy.scalar import load_reward_config, load_reward_model
from r1lit.policy.scores import FullScores, Scores, TopScores, divergence_K
from r1lit.policy.teacher import ModelTeacher, Teacher
from r1lit.policy.teacher_server import ServerTeacher
from r1lit.policy.vocabulary import check_same_vocabulary

__all__ = [
    "FullScores",
    "ModelTeacher",
    "Predictions",
    "ResponseLogp",
    "Scores",
    "ServerTeacher",
    "Teacher",
    "TopScores",
    "check_same_vocabulary",
    "context_length",
    "divergence_K",
    "document_predictions",
    "is_packed",
    "load_config",
    "load_policy",
    "load_reward_config",
    "load_reward_model",
    "load_tokenizer",
    "refuse_leaking",
    "response_logp",
    "response_predictions",
]
