"""Rollouts: engines that draw groups of responses from a policy."""

from r1lit.rollout.engine import OnEnd, RolloutEngine
from r1lit.rollout.in_process import InProcessEngine
from r1lit.rollout.sampling import Sampling
from r1lit.rollout.server import ServerEngine
from r1lit.rollout.text import Draw, PolicyEngine, Request, Source, TextEngine

__all__ = [
    "Draw",
    "InProcessEngine",
    "OnEnd",
    "PolicyEngine",
    "Request",
    "RolloutEngine",
    "Sampling",
    "ServerEngine",
    "Source",
    "TextEngine",
]
