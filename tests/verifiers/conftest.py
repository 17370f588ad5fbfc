from collections.abc import Callable, Iterator

import pytest

from r1lit.batches import Problem, Verdict
from r1lit.verifiers import MathVerifier


@pytest.fixture(scope="session")
def math_verifier() -> Iterator[MathVerifier]:
    verifier = MathVerifier(timeout_s=20.0)
    yield verifier
    verifier.close()


@pytest.fixture(scope="session")
def verdict_of(math_verifier: MathVerifier) -> Callable[[str, str], Verdict]:
    def decide(answer: str, gold: str) -> Verdict:
        problem = Problem(uid="m", question="", answer=gold, source="test")
        return math_verifier.verify(f"<think> x </think> <answer> {answer} </answer>", problem)

    return decide
