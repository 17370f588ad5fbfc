"""Environments: what a policy acts in, from one turn to many; messages in, messages out."""

from r1lit.environments.base import (
    Environment,
    Episode,
    Reply,
    SingleTurn,
    Step,
    ToolCall,
    TurnLimits,
)
from r1lit.environments.turns import ChatTurns, InlineTurns, TurnFormat

__all__ = [
    "ChatTurns",
    "Environment",
    "Episode",
    "InlineTurns",
    "Reply",
    "SingleTurn",
    "Step",
    "ToolCall",
    "TurnFormat",
    "TurnLimits",
]
