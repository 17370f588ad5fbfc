from .advantages import (
    AdvantageEstimator as AdvantageEstimator,
    GroupCentered as GroupCentered,
    GroupEstimator as GroupEstimator,
    GroupNormalized as GroupNormalized,
    LeaveOneOut as LeaveOneOut,
    MeanNormalized as MeanNormalized,
)
from .cispo import CISPO as CISPO
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
from .dppo import DPPO as DPPO
from .entropy_bonus import EntropyBonus as EntropyBonus
from .gae import GAE as GAE
from .gmpo import GMPO as GMPO
from .grpo import DAPO as DAPO, GRPO as GRPO, DrGRPO as DrGRPO, GRPOSequence as GRPOSequence
from .gspo import GSPO as GSPO, GSPOToken as GSPOToken
from .loss_inputs import LossInputs as LossInputs, LossOutputs as LossOutputs
from .no_baseline import Kept as Kept, NoBaseline as NoBaseline
from .objective import (
    ClippedObjective as ClippedObjective,
    Objective as Objective,
    SymmetricClip as SymmetricClip,
)
from .per_reward import RewardsApart as RewardsApart
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
