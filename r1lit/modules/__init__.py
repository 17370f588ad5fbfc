"""LightningModules: supervised fine-tuning and reinforcement learning."""

from r1lit.modules.base import PolicyModule
from r1lit.modules.grpo import GRPOModule
from r1lit.modules.sft import SFTModule

__all__ = ["GRPOModule", "PolicyModule", "SFTModule"]
