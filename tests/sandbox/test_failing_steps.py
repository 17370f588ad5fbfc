"""A step of the sandbox that fails is an ``error``, never a verdict on the program.

Each system call that confinement needs is refused for real, by a filter around the whole sandbox.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from r1lit.sandbox import confine, grading
from r1lit.sandbox.base import Limits, SandboxError
from r1lit.sandbox.confine import MACHINE, PR_SET_NO_NEW_PRIVS, prctl
from r1lit.sandbox.local import LocalSandbox

pytestmark = [
    pytest.mark.alone,
    pytest.mark.skipif(MACHINE != "x86_64", reason="system calls by their numbers on x86-64"),
]

CALLS = {
    "setsid": 112, "dup2": 33, "dup3": 292, "rt_sigaction": 13, "rt_sigprocmask": 14,
    "prlimit64": 302, "setgroups": 116, "setresgid": 119, "setresuid": 117, "umask": 95,
    "chdir": 80, "capset": 126, "pidfd_open": 434, "mount": 165, "umount2": 166,
    "pivot_root": 155, "mount_setattr": 442,
}  # fmt: skip
OPTIONS = {"not dumpable": 4, "no new privileges": 38, "a filter of system calls": 22}
FAULTS = [*CALLS, *OPTIONS]
NOT_ALWAYS_CALLED = {"dup2", "dup3", "setgroups", "setresgid", "setresuid"}


def condition(fault: str) -> confine.Condition:
    if fault in CALLS:  # no argument has no bits
        return confine.Condition(fault, {MACHINE: CALLS[fault]}, 0, 0, 0, True)
    return confine.Condition(fault, {MACHINE: 157}, 0, 0xFFFFFFFF, OPTIONS[fault], True)


def judge_with(fault: str) -> None:
    """Print the verdicts on two programs, the first right and the second wrong."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    sandbox = LocalSandbox()
    confine.install(confine.assemble([], [condition(fault)]))
    for code in ("pass", "print(5)"):
        request = {
            "language": "python", "code": code, "inputs": ["", ""], "outputs": ["", ""],
            "tolerance": 0.0, "total_s": 30.0, "partial": True,
        }  # fmt: skip
        try:
            verdict = grading.grade_output(sandbox, request, Limits(wall_s=2.0))
        except SandboxError as error:
            verdict = {"status": "error", "value": 0.0, "reason": str(error)}
        print(json.dumps(verdict), flush=True)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_refused_system_call_is_an_error(fault):
    paths = {**os.environ, "PYTHONPATH": os.getcwd()}
    done = subprocess.run(
        [sys.executable, __file__, fault], capture_output=True, text=True, env=paths, timeout=100
    )
    assert done.returncode == 0, done.stderr
    verdicts = [json.loads(line) for line in done.stdout.splitlines()]
    statuses = [verdict["status"] for verdict in verdicts]
    if fault in NOT_ALWAYS_CALLED and statuses[0] != "error":
        assert statuses == ["right", "wrong"], verdicts
        return
    assert statuses == ["error", "error"], verdicts
    assert all(verdict["value"] == 0.0 and verdict["reason"] for verdict in verdicts)


if __name__ == "__main__":
    judge_with(sys.argv[1])
