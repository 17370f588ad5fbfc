"""What watches a run: each callback reads ``outputs["rollout"]`` and does one thing."""

from r1lit.callbacks.curves import CurveWriter
from r1lit.callbacks.evaluate_first import EvaluateFirst
from r1lit.callbacks.export import ExportHuggingFace
from r1lit.callbacks.group_health import GroupHealth
from r1lit.callbacks.iteration_checkpoint import IterationCheckpoint
from r1lit.callbacks.majority_vote import MajorityVoteEvaluation
from r1lit.callbacks.outcome import Outcome
from r1lit.callbacks.progress import R1ProgressBar
from r1lit.callbacks.reference_refresh import ReferenceRefresh
from r1lit.callbacks.reflection import ReflectionWords
from r1lit.callbacks.rejection_sampling import RejectionSampling
from r1lit.callbacks.response_length import ResponseLength
from r1lit.callbacks.response_table import ResponseTable
from r1lit.callbacks.reward_figure import RewardFigure

__all__ = [
    "CurveWriter",
    "EvaluateFirst",
    "ExportHuggingFace",
    "GroupHealth",
    "IterationCheckpoint",
    "MajorityVoteEvaluation",
    "Outcome",
    "R1ProgressBar",
    "ReferenceRefresh",
    "ReflectionWords",
    "RejectionSampling",
    "ResponseLength",
    "ResponseTable",
    "RewardFigure",
]
