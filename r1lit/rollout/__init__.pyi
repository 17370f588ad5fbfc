from .constrained import ConstrainedEngine as ConstrainedEngine
from .engine import (
    Completion as Completion,
    ModelSpec as ModelSpec,
    OnFinished as OnFinished,
    Request as Request,
    RolloutEngine as RolloutEngine,
    Sampling as Sampling,
    check_trains as check_trains,
    texts_of as texts_of,
)
from .in_process import InProcessEngine as InProcessEngine
from .local_model import LocalModel as LocalModel
from .server_engine import ServerEngine as ServerEngine
from .vllm import VLLMEngine as VLLMEngine
