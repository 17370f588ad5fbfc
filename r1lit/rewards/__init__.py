"""Reward functions and their weighted sum."""

from r1lit.rewards.base import (
    ConditionalReward,
    PlainReward,
    Reward,
    RewardFunction,
    StepRewards,
    as_reward,
    check_rewards,
    score,
)
from r1lit.rewards.reward_models import ProcessReward, RewardModel
from r1lit.rewards.rules import (
    Accuracy,
    CosineLength,
    Format,
    GroupLength,
    LanguageConsistency,
    Overlong,
    Repetition,
    SpecialTokenFormat,
)

__all__ = [
    "Accuracy",
    "ConditionalReward",
    "CosineLength",
    "Format",
    "GroupLength",
    "LanguageConsistency",
    "Overlong",
    "PlainReward",
    "ProcessReward",
    "Repetition",
    "Reward",
    "RewardFunction",
    "RewardModel",
    "SpecialTokenFormat",
    "StepRewards",
    "as_reward",
    "check_rewards",
    "score",
]
