"""Every attack fails, harms nothing, and leaves no process or file behind."""

from __future__ import annotations

import pytest
from sandbox.attacks import CALLED, HONEST, TESTS
from sandbox.leftovers import descendants, files, num_mounts, strangers
from verifiers.code_problems import fenced

from r1lit.batches import Problem
from r1lit.sandbox import Limits
from r1lit.verifiers import FunctionalCodeVerifier

pytestmark = pytest.mark.alone

LIMITS = Limits(wall_s=1.0, cpu_s=1.0, memory_bytes=256 << 20, scratch_bytes=16 << 20)
PROBLEM = Problem(uid="a", question="", answer="", source="test", meta={"tests": TESTS})


@pytest.fixture(scope="module")
def verifier():
    verifier = FunctionalCodeVerifier(timeout_s=5.0, num_workers=1, limits=LIMITS)
    assert verifier.verify(fenced(HONEST), PROBLEM).status == "right"
    yield verifier
    verifier.close()


@pytest.mark.parametrize("name", CALLED)
def test_attack(verifier, name):
    workers = verifier.pool.pids
    before = descendants(), files(), num_mounts()
    verdict = verifier.verify(fenced(CALLED[name]), PROBLEM)
    assert verdict.status in ("wrong", "timeout"), verdict
    assert verdict.value == 0.0 and verdict.reason
    assert (descendants(), files(), num_mounts()) == before
    assert not strangers()
    assert verifier.pool.pids == workers, "the attack cost a worker"
    assert verifier.verify(fenced(HONEST), PROBLEM).status == "right"


def test_there_are_sixty():
    assert len(CALLED) >= 60
