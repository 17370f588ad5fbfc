from .base import (
    Environment as Environment,
    Episode as Episode,
    Reply as Reply,
    StepResult as StepResult,
    ToolCall as ToolCall,
    TurnLimits as TurnLimits,
)
from .bfcl import BFCL as BFCL
from .gymnasium import StepEpisodes as StepEpisodes
from .repository import Repository as Repository
from .taskset import Taskset as Taskset
from .tools import PythonTool as PythonTool, ToolObjects as ToolObjects, Tools as Tools
from .turns import ChatTurns as ChatTurns, InlineTurns as InlineTurns, TurnFormat as TurnFormat
