"""Objectives: what an update maximises, and how rewards become advantages.

Each class is one paper's objective, picked in YAML by ``class_path: r1lit.objectives.GRPO``; each
function is one numbered equation. ``docs/EQUATIONS.md`` is the index. Nothing here uses models or
Lightning: tensors in, tensors out.
"""

from r1lit.objectives.advantages import (
    AdvantageEstimator,
    GroupCentered,
    GroupEstimator,
    GroupNormalized,
    Kept,
    LeaveOneOut,
    NoBaseline,
)
from r1lit.objectives.base import LossInputs, LossOutputs, Objective
from r1lit.objectives.cispo import CISPO
from r1lit.objectives.clipping import ClippedObjective, SymmetricClip
from r1lit.objectives.corrections import (
    Correction,
    MaskedImportanceSampling,
    SequenceMaskedImportanceSampling,
    TruncatedImportanceSampling,
)
from r1lit.objectives.covariance import ClipCov, KLCov
from r1lit.objectives.dapo import DAPO
from r1lit.objectives.divergence import Divergence, ForwardKL, GeneralizedJSD, ReverseKL
from r1lit.objectives.dpo import DPO
from r1lit.objectives.dr_grpo import DrGRPO
from r1lit.objectives.gae import GAE
from r1lit.objectives.grpo import GRPO
from r1lit.objectives.grpo_sequence import GRPOSequence
from r1lit.objectives.gspo import GSPO
from r1lit.objectives.kl import KL_ESTIMATORS, KLName, k1_BT, k2_BT, k3_BT
from r1lit.objectives.policy_gradient import PolicyGradient
from r1lit.objectives.ppo import PPO
from r1lit.objectives.preference import (
    BradleyTerry,
    RewardObjective,
    SafeUnsafe,
    StepCrossEntropy,
)
from r1lit.objectives.process import ImplicitProcess, ProcessSupervision
from r1lit.objectives.rloo import RLOO
from r1lit.objectives.sampled_divergence import SampledReverseKL
from r1lit.objectives.value import ValueObjective

__all__ = [
    "CISPO",
    "DAPO",
    "DPO",
    "GAE",
    "GRPO",
    "GSPO",
    "KL_ESTIMATORS",
    "PPO",
    "RLOO",
    "AdvantageEstimator",
    "BradleyTerry",
    "ClipCov",
    "ClippedObjective",
    "Correction",
    "Divergence",
    "DrGRPO",
    "ForwardKL",
    "GRPOSequence",
    "GeneralizedJSD",
    "GroupCentered",
    "GroupEstimator",
    "GroupNormalized",
    "ImplicitProcess",
    "KLCov",
    "KLName",
    "Kept",
    "LeaveOneOut",
    "LossInputs",
    "LossOutputs",
    "MaskedImportanceSampling",
    "NoBaseline",
    "Objective",
    "PolicyGradient",
    "ProcessSupervision",
    "ReverseKL",
    "RewardObjective",
    "SafeUnsafe",
    "SampledReverseKL",
    "SequenceMaskedImportanceSampling",
    "StepCrossEntropy",
    "SymmetricClip",
    "TruncatedImportanceSampling",
    "ValueObjective",
    "k1_BT",
    "k2_BT",
    "k3_BT",
]
