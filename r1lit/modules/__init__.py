"""LightningModules: supervised, distillation, reward models, reinforcement learning, evaluation."""

from r1lit.modules.base import CosineOverRun, PolicyModule
from r1lit.modules.distillation import DistillationModule
from r1lit.modules.dpo import DPOModule, OnlineDPOModule
from r1lit.modules.evaluation import EvaluationModule
from r1lit.modules.grpo import GRPOModule
from r1lit.modules.ppo import PPOModule
from r1lit.modules.prime import PRIMEModule
from r1lit.modules.reward import ProcessRewardModule, RewardModule
from r1lit.modules.sft import SFTModule
from r1lit.modules.suites import SuiteData

__all__ = [
    "CosineOverRun",
    "DPOModule",
    "DistillationModule",
    "EvaluationModule",
    "GRPOModule",
    "OnlineDPOModule",
    "PPOModule",
    "PRIMEModule",
    "PolicyModule",
    "ProcessRewardModule",
    "RewardModule",
    "SFTModule",
    "SuiteData",
]
