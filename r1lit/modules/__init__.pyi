from .base import PolicyModule as PolicyModule
from .distillation import DistillationModule as DistillationModule
from .dpo import DPOModule as DPOModule, OnlineDPOModule as OnlineDPOModule
from .evaluation import EvaluationModule as EvaluationModule
from .grpo import GRPOModule as GRPOModule
from .reward import ProcessRewardModule as ProcessRewardModule, RewardModule as RewardModule
from .schedules import CosineOverRun as CosineOverRun
from .sft import SFTModule as SFTModule
from .suites import SuiteData as SuiteData
