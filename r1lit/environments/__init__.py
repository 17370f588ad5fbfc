"""Environments: what a policy acts in, from one turn to many; messages in, messages out."""

from r1lit.environments.base import Environment, Episode, Reply, SingleTurn, Step, ToolCall

__all__ = ["Environment", "Episode", "Reply", "SingleTurn", "Step", "ToolCall"]
