"""Policies and teachers: any Hugging Face causal language model, and its log-probabilities."""

from r1lit.policy.loading import (
    context_length,
    load_config,
    load_policy,
    load_reward_config,
    load_reward_model,
    load_tokenizer,
)
from r1lit.policy.outputs import (
    Compute,
    CrossEntropy,
    Divergences,
    Logits,
    LogProbs,
    PolicyOutput,
    Scores,
    States,
    TopScores,
)
from r1lit.policy.policy import HiddenStates, Policy, Responses, evaluating, is_packed, rope_limit
from r1lit.policy.scalar_head import ScalarModel
from r1lit.policy.source import ModelSource
from r1lit.policy.teacher import (
    FullScores,
    ModelTeacher,
    ServerTeacher,
    Teacher,
    Teachers,
    check_same_vocabulary,
)

__all__ = [
    "Compute",
    "CrossEntropy",
    "Divergences",
    "FullScores",
    "HiddenStates",
    "LogProbs",
    "Logits",
    "ModelSource",
    "ModelTeacher",
    "Policy",
    "PolicyOutput",
    "Responses",
    "ScalarModel",
    "Scores",
    "ServerTeacher",
    "States",
    "Teacher",
    "Teachers",
    "TopScores",
    "check_same_vocabulary",
    "context_length",
    "evaluating",
    "is_packed",
    "load_config",
    "load_policy",
    "load_reward_config",
    "load_reward_model",
    "load_tokenizer",
    "rope_limit",
]
