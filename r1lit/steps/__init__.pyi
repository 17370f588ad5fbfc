from .base import LearningStep as LearningStep, Run as Run, Step as Step
from .correction import Correction as Correction
from .critic import Critic as Critic
from .kl_in_reward import KLInReward as KLInReward
from .mask_truncated import MaskTruncated as MaskTruncated
from .process_model import ProcessModel as ProcessModel
from .top_entropy import TopEntropy as TopEntropy
from .value_truth import ValueTruth as ValueTruth
