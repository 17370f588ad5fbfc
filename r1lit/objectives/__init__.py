"""Objectives of an update, and advantages from rewards.

Each class is one paper's objective, picked in YAML by ``class_path: r1lit.objectives.GRPO``; each
function is one numbered equation. ``docs/EQUATIONS.md`` is the index. Nothing here uses models or
Lightning: tensors in, tensors out.
"""

from r1lit.objectives.advantages import (
    GAE,
    AdvantageEstimator,
    GroupCentered,
    GroupEstimator,
    GroupNormalized,
    ImplicitProcess,
    Kept,
    LeaveOneOut,
    MeanNormalized,
    NoBaseline,
    ProcessSupervision,
    RewardsApart,
)
from r1lit.objectives.corrections import (
    Correction,
    MaskedImportanceSampling,
    SequenceMaskedImportanceSampling,
    TruncatedImportanceSampling,
)
from r1lit.objectives.covariance import ClipCov, KLCov
from r1lit.objectives.distillation import (
    Divergence,
    ForwardKL,
    GeneralizedJSD,
    ReverseKL,
    SampledReverseKL,
)
from r1lit.objectives.objective import (
    ClippedObjective,
    EntropyBonus,
    LossInputs,
    LossOutputs,
    Objective,
    SymmetricClip,
)
from r1lit.objectives.policy_gradient import (
    CISPO,
    DAPO,
    DPPO,
    GMPO,
    GRPO,
    GSPO,
    PPO,
    RLOO,
    SAPO,
    DrGRPO,
    GRPOSequence,
    GSPOToken,
    PolicyGradient,
    ValueObjective,
)
from r1lit.objectives.preference import (
    DPO,
    BradleyTerry,
    RewardObjective,
    SafeUnsafe,
    StepCrossEntropy,
)
from r1lit.objectives.terms import KL_ESTIMATORS, KLName, k1_BT, k2_BT, k3_BT

__all__ = [
    "CISPO",
    "DAPO",
    "DPO",
    "DPPO",
    "GAE",
    "GMPO",
    "GRPO",
    "GSPO",
    "KL_ESTIMATORS",
    "PPO",
    "RLOO",
    "SAPO",
    "AdvantageEstimator",
    "BradleyTerry",
    "ClipCov",
    "ClippedObjective",
    "Correction",
    "Divergence",
    "DrGRPO",
    "EntropyBonus",
    "ForwardKL",
    "GRPOSequence",
    "GSPOToken",
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
    "MeanNormalized",
    "NoBaseline",
    "Objective",
    "PolicyGradient",
    "ProcessSupervision",
    "ReverseKL",
    "RewardObjective",
    "RewardsApart",
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
