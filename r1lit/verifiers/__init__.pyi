from .base import (
    DefaultVerifiers as DefaultVerifiers,
    Grader as Grader,
    NoVerifier as NoVerifier,
    Verifier as Verifier,
)
from .choice import ChoiceVerifier as ChoiceVerifier
from .code import (
    FunctionalCodeVerifier as FunctionalCodeVerifier,
    StdinCodeVerifier as StdinCodeVerifier,
)
from .countdown import CountdownVerifier as CountdownVerifier
from .exact import ExactVerifier as ExactVerifier
from .game24 import Game24Verifier as Game24Verifier
from .generative import (
    GenerativePreference as GenerativePreference,
    GenerativeVerifier as GenerativeVerifier,
    PreferenceJudge as PreferenceJudge,
)
from .gold_answers import (
    check_gold_answers as check_gold_answers,
    check_rewarded as check_rewarded,
)
from .ifeval import IFEvalVerifier as IFEvalVerifier
from .logic import LogicVerifier as LogicVerifier
from .mathematics import MathVerifier as MathVerifier
from .reasoning_gym import ReasoningGymVerifier as ReasoningGymVerifier
from .repository import RepositoryVerifier as RepositoryVerifier
from .structured import (
    FunctionCallVerifier as FunctionCallVerifier,
    JSONSchemaVerifier as JSONSchemaVerifier,
)
