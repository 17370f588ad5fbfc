from .divergences import Divergences as Divergences, Scores as Scores, TopScores as TopScores
from .linear_cross_entropy import CrossEntropy as CrossEntropy
from .loading import (
    context_length as context_length,
    load_config as load_config,
    load_policy as load_policy,
    load_tokenizer as load_tokenizer,
)
from .outputs import (
    Compute as Compute,
    Logits as Logits,
    LogProbs as LogProbs,
    States as States,
)
from .policy import (
    HiddenStates as HiddenStates,
    Policy as Policy,
    Responses as Responses,
    evaluating as evaluating,
    is_packed as is_packed,
)
from .predictions import PolicyOutput as PolicyOutput
from .rope import rope_limit as rope_limit
from .scalar_head import ScalarModel as ScalarModel
from .scalar_loading import (
    load_reward_config as load_reward_config,
    load_reward_model as load_reward_model,
)
from .source import ModelSource as ModelSource
from .teacher import (
    FullScores as FullScores,
    ModelTeacher as ModelTeacher,
    ServerTeacher as ServerTeacher,
    Teacher as Teacher,
    Teachers as Teachers,
    check_same_vocabulary as check_same_vocabulary,
)
