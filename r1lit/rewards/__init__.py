"""Reward functions and their weighted sum."""

from r1lit.rewards.accuracy import Accuracy
from r1lit.rewards.base import RewardFunction, StepRewards
from r1lit.rewards.combine import check_rewards, score
from r1lit.rewards.conditional import ConditionalReward
from r1lit.rewards.format import Format, SpecialTokenFormat
from r1lit.rewards.language import LanguageConsistency
from r1lit.rewards.length import CosineLength, GroupLength
from r1lit.rewards.overlong import Overlong
from r1lit.rewards.plain import PlainReward, Reward, as_reward
from r1lit.rewards.process_reward import ProcessReward
from r1lit.rewards.repetition import Repetition
from r1lit.rewards.reward_model import RewardModel

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
