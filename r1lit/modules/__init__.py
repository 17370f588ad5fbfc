"""LightningModules: supervised fine-tuning, reinforcement learning and evaluation."""

from r1lit.modules.base import PolicyModule
from r1lit.modules.evaluation import EvaluationModule
from r1lit.modules.grpo import GRPOModule
from r1lit.modules.sft import SFTModule

__all__ = ["EvaluationModule", "GRPOModule", "PolicyModule", "SFTModule"]
