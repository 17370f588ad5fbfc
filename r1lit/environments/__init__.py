"""Environments that answer a policy's turns, one or many: messages in, messages out."""

from r1lit.environments.base import (
    Environment,
    Episode,
    Reply,
    SingleTurn,
    StepResult,
    ToolCall,
    TurnLimits,
)
from r1lit.environments.bfcl import BFCL
from r1lit.environments.gymnasium import StepEpisodes
from r1lit.environments.repository import Repository
from r1lit.environments.taskset import Taskset
from r1lit.environments.tools import PythonTool, ToolObjects, Tools
from r1lit.environments.turns import ChatTurns, InlineTurns, TurnFormat

__all__ = [
    "BFCL",
    "ChatTurns",
    "Environment",
    "Episode",
    "InlineTurns",
    "PythonTool",
    "Reply",
    "Repository",
    "SingleTurn",
    "StepEpisodes",
    "StepResult",
    "Taskset",
    "ToolCall",
    "ToolObjects",
    "Tools",
    "TurnFormat",
    "TurnLimits",
]
