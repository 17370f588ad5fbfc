from .checkpoints import (
    ExportHuggingFace as ExportHuggingFace,
    IterationCheckpoint as IterationCheckpoint,
)
from .curves import CurveWriter as CurveWriter, RewardFigure as RewardFigure
from .doctor import Doctor as Doctor
from .keep_best import KeepBest as KeepBest
from .profile import Profile as Profile
from .progress import LastLines as LastLines, R1ProgressBar as R1ProgressBar
from .rejection_sampling import RejectionSampling as RejectionSampling
from .response_table import ResponseTable as ResponseTable
from .rollout_metrics import (
    GroupHealth as GroupHealth,
    MajorityVoteEvaluation as MajorityVoteEvaluation,
    ReflectionWords as ReflectionWords,
    ResponseLength as ResponseLength,
)
from .schedule import EvaluateFirst as EvaluateFirst, ReferenceRefresh as ReferenceRefresh
from .start_checks import StartChecks as StartChecks
