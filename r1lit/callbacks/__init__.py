"""Callbacks that watch a run: each reads ``outputs["rollout"]`` and does one thing."""

from r1lit.callbacks.checkpoints import ExportHuggingFace, IterationCheckpoint
from r1lit.callbacks.curves import CurveWriter, RewardFigure
from r1lit.callbacks.profile import Profile
from r1lit.callbacks.progress import LastLines, R1ProgressBar
from r1lit.callbacks.rejection_sampling import RejectionSampling
from r1lit.callbacks.response_table import ResponseTable
from r1lit.callbacks.rollout_metrics import (
    GroupHealth,
    MajorityVoteEvaluation,
    ReflectionWords,
    ResponseLength,
)
from r1lit.callbacks.schedule import EvaluateFirst, ReferenceRefresh

__all__ = [
    "CurveWriter",
    "EvaluateFirst",
    "ExportHuggingFace",
    "GroupHealth",
    "IterationCheckpoint",
    "LastLines",
    "MajorityVoteEvaluation",
    "Profile",
    "R1ProgressBar",
    "ReferenceRefresh",
    "ReflectionWords",
    "RejectionSampling",
    "ResponseLength",
    "ResponseTable",
    "RewardFigure",
]
