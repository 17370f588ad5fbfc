from .constrained import ConstrainedEngine as ConstrainedEngine
from .engine import (
    Capabilities as Capabilities,
    JoiningEngine as JoiningEngine,
    ModelSpec as ModelSpec,
    RolloutEngine as RolloutEngine,
)
from .in_process import InProcessEngine as InProcessEngine
from .local_model import LocalModel as LocalModel
from .request import (
    Completion as Completion,
    OnFinished as OnFinished,
    Request as Request,
    texts_of as texts_of,
)
from .sampling import Sampling as Sampling
from .server_engine import ServerEngine as ServerEngine
from .training_checks import check_trains as check_trains
from .vllm import VLLMEngine as VLLMEngine
