"""Every attack by a program that reads standard input fails, harms nothing and leaves nothing."""

from __future__ import annotations

import pytest
from sandbox.leftovers import descendants, files, num_mounts, strangers
from sandbox.stdin_attacks import COMPILED, HONEST, INPUTS, OUTPUTS, PRINTED, READING
from verifiers.code_problems import fenced

from r1lit.batches import Problem
from r1lit.sandbox import Limits, LocalSandbox
from r1lit.verifiers import StdinCodeVerifier

pytestmark = pytest.mark.alone

LIMITS = Limits(wall_s=1.0, cpu_s=1.0, memory_bytes=256 << 20, scratch_bytes=16 << 20)
TESTS = {"inputs": INPUTS, "outputs": OUTPUTS}
PROBLEM = Problem(uid="a", question="", answer="", source="test", meta={"tests": TESTS})


@pytest.fixture(scope="module")
def verifier():
    # partial: an answer to one test alone would show
    verifier = StdinCodeVerifier(timeout_s=60.0, num_workers=1, limits=LIMITS, partial=True)
    assert verifier.verify(fenced(HONEST), PROBLEM).status == "right"
    yield verifier
    verifier.close()


def assert_fails(verifier: StdinCodeVerifier, code: str, language: str = "python") -> None:
    workers = verifier.pool.pids
    before = descendants(), files(), num_mounts()
    verdict = verifier.verify(fenced(code, language), PROBLEM)
    assert verdict.status in ("wrong", "timeout"), verdict
    assert verdict.value == 0.0 and verdict.reason, verdict
    assert (descendants(), files(), num_mounts()) == before
    assert not strangers()
    assert verifier.pool.pids == workers, "the attack cost a worker"
    assert verifier.verify(fenced(HONEST), PROBLEM).status == "right"


@pytest.mark.parametrize("name", PRINTED)
def test_attack(verifier, name):
    assert_fails(verifier, PRINTED[name])


@pytest.mark.slow
@pytest.mark.skipif("c++" not in LocalSandbox().languages, reason="no C++ compiler here")
@pytest.mark.parametrize("name", COMPILED)
def test_attack_in_cpp(verifier, name):
    assert_fails(verifier, COMPILED[name], "cpp")


@pytest.mark.slow
@pytest.mark.parametrize("name", READING)
def test_attack_on_functions_as_a_program(verifier, name):
    assert_fails(verifier, READING[name])


@pytest.mark.slow
def test_a_limit_on_cpu_time_is_a_timeout_however_it_ends_the_program(verifier):
    names = ("an endless loop", "an endless loop that ignores the limit's signal")
    for name in names:
        verdict = verifier.verify(fenced(PRINTED[name]), PROBLEM)
        assert verdict.status == "timeout" and "time" in verdict.reason, verdict
