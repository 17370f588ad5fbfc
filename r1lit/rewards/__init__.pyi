from .base import RewardFunction as RewardFunction, StepRewards as StepRewards
from .conditional import ConditionalReward as ConditionalReward
from .language import LanguageConsistency as LanguageConsistency
from .length import CosineLength as CosineLength, GroupLength as GroupLength, Overlong as Overlong
from .plain import PlainReward as PlainReward, Reward as Reward, as_reward as as_reward
from .repetition import Repetition as Repetition
from .reward_models import ProcessReward as ProcessReward, RewardModel as RewardModel
from .rules import Accuracy as Accuracy, Format as Format
from .special_tokens import SpecialTokenFormat as SpecialTokenFormat
from .total import check_rewards as check_rewards, score as score
