"""Verifiers: they decide whether a response answers its problem."""

from r1lit.verifiers.base import Verifier
from r1lit.verifiers.countdown import CountdownVerifier
from r1lit.verifiers.functional_code import FunctionalCodeVerifier
from r1lit.verifiers.golds import check_golds
from r1lit.verifiers.judge import Judge
from r1lit.verifiers.mathematics import MathVerifier
from r1lit.verifiers.stdin_code import StdinCodeVerifier

__all__ = [
    "CountdownVerifier",
    "FunctionalCodeVerifier",
    "Judge",
    "MathVerifier",
    "StdinCodeVerifier",
    "Verifier",
    "check_golds",
]
