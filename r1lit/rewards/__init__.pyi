from .base import (
    ConditionalReward as ConditionalReward,
    PlainReward as PlainReward,
    Reward as Reward,
    RewardFunction as RewardFunction,
    StepRewards as StepRewards,
    as_reward as as_reward,
    check_rewards as check_rewards,
    score as score,
)
from .reward_models import ProcessReward as ProcessReward, RewardModel as RewardModel
from .rules import (
    Accuracy as Accuracy,
    CosineLength as CosineLength,
    Format as Format,
    GroupLength as GroupLength,
    LanguageConsistency as LanguageConsistency,
    Overlong as Overlong,
    Repetition as Repetition,
    SpecialTokenFormat as SpecialTokenFormat,
)
