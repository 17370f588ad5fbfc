"""Verifiers: they decide whether a response answers its problem."""

from r1lit.verifiers.base import Grader, NoVerifier, Verifier
from r1lit.verifiers.choice import ChoiceVerifier
from r1lit.verifiers.code import FunctionalCodeVerifier, StdinCodeVerifier
from r1lit.verifiers.countdown import CountdownVerifier, Game24Verifier
from r1lit.verifiers.defaults import check_gold_answers, default_verifiers
from r1lit.verifiers.exact import ExactVerifier
from r1lit.verifiers.generative import GenerativePreference, GenerativeVerifier, PreferenceJudge
from r1lit.verifiers.ifeval import IFEvalVerifier
from r1lit.verifiers.logic import LogicVerifier
from r1lit.verifiers.mathematics import MathVerifier
from r1lit.verifiers.reasoning_gym import ReasoningGymVerifier
from r1lit.verifiers.repository import RepositoryVerifier
from r1lit.verifiers.structured import FunctionCallVerifier, JSONSchemaVerifier

__all__ = [
    "ChoiceVerifier",
    "CountdownVerifier",
    "ExactVerifier",
    "FunctionCallVerifier",
    "FunctionalCodeVerifier",
    "Game24Verifier",
    "GenerativePreference",
    "GenerativeVerifier",
    "Grader",
    "IFEvalVerifier",
    "JSONSchemaVerifier",
    "LogicVerifier",
    "MathVerifier",
    "NoVerifier",
    "PreferenceJudge",
    "ReasoningGymVerifier",
    "RepositoryVerifier",
    "StdinCodeVerifier",
    "Verifier",
    "check_gold_answers",
    "default_verifiers",
]
