from .advantages import (
    AdvantageEstimator as AdvantageEstimator,
    GroupCentered as GroupCentered,
    GroupEstimator as GroupEstimator,
    GroupNormalized as GroupNormalized,
    LeaveOneOut as LeaveOneOut,
    MeanNormalized as MeanNormalized,
)
from .cispo import CISPO as CISPO
from .covariance import ClipCov as ClipCov, KLCov as KLCov
from .distillation import (
    Divergence as Divergence,
    ForwardKL as ForwardKL,
    GeneralizedJSD as GeneralizedJSD,
    ReverseKL as ReverseKL,
    SampledReverseKL as SampledReverseKL,
)
from .dppo import DPPO as DPPO
from .entropy_bonus import EntropyBonus as EntropyBonus
from .gae import GAE as GAE
from .gmpo import GMPO as GMPO
from .grpo import DAPO as DAPO, GRPO as GRPO, DrGRPO as DrGRPO, GRPOSequence as GRPOSequence
from .gspo import GSPO as GSPO, GSPOToken as GSPOToken
from .importance_weights import (
    ImportanceWeights as ImportanceWeights,
    MaskedImportanceSampling as MaskedImportanceSampling,
    SequenceMaskedImportanceSampling as SequenceMaskedImportanceSampling,
    TruncatedImportanceSampling as TruncatedImportanceSampling,
)
from .loss_inputs import LossInputs as LossInputs, LossOutputs as LossOutputs
from .no_baseline import NoBaseline as NoBaseline, OnlyKept as OnlyKept
from .objective import (
    ClippedObjective as ClippedObjective,
    Objective as Objective,
    SymmetricClip as SymmetricClip,
)
from .per_reward import NormalizedPerReward as NormalizedPerReward
from .policy_gradient import RLOO as RLOO, PolicyGradient as PolicyGradient
from .ppo import PPO as PPO, ValueObjective as ValueObjective
from .preference import (
    DPO as DPO,
    BradleyTerry as BradleyTerry,
    RewardObjective as RewardObjective,
    SafeUnsafe as SafeUnsafe,
    StepCrossEntropy as StepCrossEntropy,
)
from .sapo import SAPO as SAPO
from .step_advantages import (
    ImplicitProcess as ImplicitProcess,
    ProcessSupervision as ProcessSupervision,
    TurnReturns as TurnReturns,
)
from .terms import (
    KL_ESTIMATORS as KL_ESTIMATORS,
    KLName as KLName,
    k1_BT as k1_BT,
    k2_BT as k2_BT,
    k3_BT as k3_BT,
)
from .terms_of_loss import PositiveNLL as PositiveNLL, Term as Term
from .whitened import Whitened as Whitened
