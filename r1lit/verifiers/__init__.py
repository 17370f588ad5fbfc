"""Verifiers: they decide whether a response answers its problem."""

from r1lit.verifiers.base import Verifier
from r1lit.verifiers.countdown import CountdownVerifier
from r1lit.verifiers.endpoint import ChatEndpoint
from r1lit.verifiers.generative import GenerativeVerifier
from r1lit.verifiers.golds import check_golds
from r1lit.verifiers.judge import Judge
from r1lit.verifiers.mathematics import MathVerifier

__all__ = [
    "ChatEndpoint",
    "CountdownVerifier",
    "GenerativeVerifier",
    "Judge",
    "MathVerifier",
    "Verifier",
    "check_golds",
]
