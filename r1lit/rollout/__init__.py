"""Rollouts: engines that generate completions from a policy."""

from r1lit.rollout.constrained import ConstrainedEngine
from r1lit.rollout.engine import (
    Completion,
    ModelSpec,
    OnFinished,
    Request,
    RolloutEngine,
    Sampling,
    check_trains,
    texts_of,
)
from r1lit.rollout.in_process import InProcessEngine
from r1lit.rollout.local_model import LocalModel
from r1lit.rollout.server_engine import ServerEngine
from r1lit.rollout.vllm import VLLMEngine

__all__ = [
    "Completion",
    "ConstrainedEngine",
    "InProcessEngine",
    "LocalModel",
    "ModelSpec",
    "OnFinished",
    "Request",
    "RolloutEngine",
    "Sampling",
    "ServerEngine",
    "VLLMEngine",
    "check_trains",
    "texts_of",
]
