"""Tests that come with a data set are programs of strangers too: they run in a sandbox."""

from __future__ import annotations

import os
import socket

import pytest
from sandbox.attacks import CALLED
from sandbox.leftovers import descendants, files, num_mounts, strangers
from verifiers.code_problems import fenced

from r1lit.batches import Problem
from r1lit.sandbox import Limits
from r1lit.verifiers import FunctionalCodeVerifier

pytestmark = pytest.mark.alone

LIMITS = Limits(wall_s=2.0, cpu_s=1.0, memory_bytes=256 << 20, scratch_bytes=16 << 20)
HONEST = "def f(x):\n    return x\n"


@pytest.fixture(scope="module")
def verifier():
    os.environ["R1LIT_TEST_SECRET"] = "31337"
    verifier = FunctionalCodeVerifier(timeout_s=20.0, num_workers=1, limits=LIMITS)
    assert status(verifier, "assert f(1) == 1") == "right"
    yield verifier
    verifier.close()
    del os.environ["R1LIT_TEST_SECRET"]


def verdict(verifier, test: str, setup: str = ""):
    meta = {"tests": [test], "setup": setup}
    problem = Problem(uid="p", question="", answer="", source="test", meta=meta)
    return verifier.verify(fenced(HONEST), problem)


def status(verifier, test: str) -> str:
    return verdict(verifier, test).status


OUT_OF_REACH = {
    "a file of the user": "open({file!r})",
    "a new file": "open({folder!r} + '/made', 'w')",
    "the environment": "__import__('os').environ['R1LIT_TEST_SECRET']",
    "this package": "__import__('r1lit.batches')",
    "the network": "__import__('socket').create_connection(('127.0.0.1', {port}))",
    "a socket at all": "__import__('socket').socket()",
    "the worker process": "open('/proc/{worker}/cmdline')",
    "a signal to the worker": "__import__('os').kill({worker}, 0)",
    "a signal to this process": "__import__('os').kill({here}, 0)",
    "a debugger's call": "1 / (__import__('ctypes').CDLL(None).ptrace(0, 0, 0, 0) + 1)",
    "a program of this machine": "__import__('subprocess').run(['/bin/true'])",
}


@pytest.mark.parametrize("place", ["tests", "setup"])
@pytest.mark.parametrize("name", OUT_OF_REACH)
def test_a_test_does_not_get_there(verifier, tmp_path, name, place):
    file = tmp_path / "file"
    file.write_text("x")
    os.chmod(tmp_path, 0o777)
    with socket.create_server(("127.0.0.1", 0)) as server:
        names = {"file": str(file), "folder": str(tmp_path), "port": server.getsockname()[1]}
        names |= {"worker": verifier.pool.pids[0], "here": os.getpid()}
        code = OUT_OF_REACH[name].format(**names)
        check = (
            f"try:\n    {code}\n    reached = True\nexcept (OSError, ImportError, KeyError, "
            "ZeroDivisionError):\n    reached = False\n"
        )
        test = "assert f(reached)" if place == "setup" else f"{check}assert f(reached)"
        found = verdict(verifier, test, check if place == "setup" else "")
    assert found.status == "wrong" and "failed assert f(reached)" in found.reason, found
    assert not (tmp_path / "made").exists()


def assert_harmless(verifier, name: str) -> None:
    workers = verifier.pool.pids
    before = descendants(), files(), num_mounts()
    test = CALLED[name].replace("def f(", "def attack(") + "\nassert f(1) == 1\nattack(1, 2)"
    assert status(verifier, test) in {"right", "wrong", "timeout", "error"}
    assert (descendants(), files(), num_mounts()) == before
    assert not strangers()
    assert verifier.pool.pids == workers, "the test cost a worker"
    assert status(verifier, "assert f(1) == 1") == "right"


QUICK = [name for number, name in enumerate(CALLED) if number % 6 == 0]


@pytest.mark.parametrize("name", QUICK)
def test_an_attack_by_a_test_leaves_nothing(verifier, name):
    assert_harmless(verifier, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CALLED if name not in QUICK])
def test_every_attack_by_a_test_leaves_nothing(verifier, name):
    assert_harmless(verifier, name)


def test_a_test_imports_what_is_installed_here(verifier):
    pytest.importorskip("numpy")
    test = "import numpy as np\nassert np.allclose(f([0.1 + 0.2]), [0.3])"
    assert status(verifier, test) == "right"


def test_what_a_test_prints_is_no_decision(verifier):
    words = '{"status": "right", "reason": ""}'
    test = f"import os\nprint({words!r}, flush=True)\nos.write(1, {words!r}.encode())\n"
    test += "assert f(1) == 2"
    assert status(verifier, test) == "wrong"
