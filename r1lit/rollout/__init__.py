"""Rollouts: engines that draw groups of responses from a policy."""

from r1lit.rollout.engine import RolloutEngine
from r1lit.rollout.in_process import InProcessEngine
from r1lit.rollout.sampling import Sampling

__all__ = ["InProcessEngine", "RolloutEngine", "Sampling"]
