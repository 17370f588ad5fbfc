from .advantages import (
    GAE as GAE,
    AdvantageEstimator as AdvantageEstimator,
    GroupCentered as GroupCentered,
    GroupEstimator as GroupEstimator,
    GroupNormalized as GroupNormalized,
    ImplicitProcess as ImplicitProcess,
    Kept as Kept,
    LeaveOneOut as LeaveOneOut,
    MeanNormalized as MeanNormalized,
    NoBaseline as NoBaseline,
    ProcessSupervision as ProcessSupervision,
    RewardsApart as RewardsApart,
    TurnReturns as TurnReturns,
)
from .corrections import (
    Correction as Correction,
    MaskedImportanceSampling as MaskedImportanceSampling,
    SequenceMaskedImportanceSampling as SequenceMaskedImportanceSampling,
    TruncatedImportanceSampling as TruncatedImportanceSampling,
)
from .covariance import ClipCov as ClipCov, KLCov as KLCov
from .distillation import (
    Divergence as Divergence,
    ForwardKL as ForwardKL,
    GeneralizedJSD as GeneralizedJSD,
    ReverseKL as ReverseKL,
    SampledReverseKL as SampledReverseKL,
)
from .objective import (
    ClippedObjective as ClippedObjective,
    EntropyBonus as EntropyBonus,
    LossInputs as LossInputs,
    LossOutputs as LossOutputs,
    Objective as Objective,
    SymmetricClip as SymmetricClip,
)
from .policy_gradient import (
    CISPO as CISPO,
    DAPO as DAPO,
    DPPO as DPPO,
    GMPO as GMPO,
    GRPO as GRPO,
    GSPO as GSPO,
    PPO as PPO,
    RLOO as RLOO,
    SAPO as SAPO,
    DrGRPO as DrGRPO,
    GRPOSequence as GRPOSequence,
    GSPOToken as GSPOToken,
    PolicyGradient as PolicyGradient,
    ValueObjective as ValueObjective,
)
from .preference import (
    DPO as DPO,
    BradleyTerry as BradleyTerry,
    RewardObjective as RewardObjective,
    SafeUnsafe as SafeUnsafe,
    StepCrossEntropy as StepCrossEntropy,
)
from .terms import (
    KL_ESTIMATORS as KL_ESTIMATORS,
    KLName as KLName,
    k1_BT as k1_BT,
    k2_BT as k2_BT,
    k3_BT as k3_BT,
)
