"""Reward functions: named callables whose numbers are rewards."""

from r1lit.rewards.accuracy import Accuracy
from r1lit.rewards.base import RewardFunction
from r1lit.rewards.combine import check_rewards, score
from r1lit.rewards.format import Format
from r1lit.rewards.overlong import Overlong

__all__ = ["Accuracy", "Format", "Overlong", "RewardFunction", "check_rewards", "score"]
