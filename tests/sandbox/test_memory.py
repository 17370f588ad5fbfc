"""The limit on memory holds wherever a program puts it, and whatever this machine lets us see."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from sandbox.hoarders import HOARDERS, HONEST, LIMIT
from sandbox.test_another_user import BECOME, FOLDERS, command

from r1lit.sandbox import Limits, LocalSandbox, Program
from r1lit.sandbox.confine import DENIED, DENIED_EVERYWHERE, MACHINE

pytestmark = pytest.mark.alone

LIMITS = Limits(wall_s=10.0, cpu_s=10.0, memory_bytes=LIMIT)


@pytest.fixture(scope="module")
def sandbox():
    with LocalSandbox() as sandbox:
        yield sandbox


def python(source: str) -> Program:
    return Program(language="python", files={"main.py": source})


@pytest.mark.parametrize("name", HOARDERS)
def test_a_hoarder_is_caught(sandbox, name):
    outcome = sandbox.run(python(HOARDERS[name]), limits=LIMITS)
    assert b"END" not in outcome.stdout and not outcome.timed_out, outcome
    assert outcome.limit == "memory" or b"Error" in outcome.stderr, outcome


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_program_is_not(sandbox, name):
    outcome = sandbox.run(python(HONEST[name]), limits=LIMITS)
    assert outcome.ok and outcome.stdout == b"END\n", outcome


EVERY_CALL = """
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
for number in {numbers}:
    ctypes.set_errno(0)
    if libc.syscall(number, *[ctypes.c_long(-1)] * 6) != -1 or ctypes.get_errno() != errno.EPERM:
        print(number)
"""


def test_every_denied_system_call_is_refused(sandbox):
    numbers = sorted({*DENIED[MACHINE].values(), *DENIED_EVERYWHERE.values()})
    assert sandbox.run(python(EVERY_CALL.format(numbers=numbers))).stdout == b""


IN_TURN = """
import json
from sandbox.hoarders import HOARDERS, HONEST, LIMIT
from r1lit.sandbox import Limits, LocalSandbox, Program, SandboxError
limits = Limits(memory_bytes=LIMIT)
with LocalSandbox(allow_unprotected={unprotected}) as sandbox:
    on = sandbox.protections()
    print(json.dumps(["network" in " ".join(on), "together" in " ".join(on)]))
    for name, code in {{**HOARDERS, **HONEST}}.items():
        try:
            program = Program(language="python", files={{"main.py": code}})
            outcome = sandbox.run(program, limits=limits)
        except SandboxError as error:
            print(json.dumps([name, "error", str(error)]))
        else:
            end = "END" if outcome.stdout == b"END\\n" else outcome.limit or outcome.exit_code
            print(json.dumps([name, end, outcome.stderr.decode()[-200:]]))
"""


def in_turn(how: str | None, setting: str, unprotected: bool = False) -> tuple[list, dict]:
    """Run all programs where ``setting``, a command of root's, has changed the machine before."""
    if os.geteuid() != 0:
        pytest.skip("only root can make such a machine")
    start = [sys.executable] if how is None else command(how)[:-1]
    shell = (
        ["unshare", "--mount", "--user", "--map-root-user"] if unprotected else ["unshare", "-m"]
    )
    done = subprocess.run(
        [*shell, "sh", "-c", setting + ' && exec "$@"', "-", *start, "-c",
         IN_TURN.format(unprotected=unprotected)],
        capture_output=True, text=True, env={**os.environ, **FOLDERS}, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    protected, *ends = map(json.loads, done.stdout.splitlines())
    return protected, {name: (end, text) for name, end, text in ends}


@pytest.mark.slow
@pytest.mark.parametrize("how", BECOME)
def test_without_a_proc_of_its_own_memory_is_counted_all_the_same(how):
    """A container hides parts of /proc, and then no user may mount one anew."""
    protected, ends = in_turn(how, "mount --bind /dev/null /proc/version")
    assert protected == [True, True]
    for name in HOARDERS:
        assert ends[name][0] not in ("END", "error"), (name, ends[name])
    for name in HONEST:
        assert ends[name][0] == "END", (name, ends[name])


def test_where_proc_hides_processes_nothing_runs_uncounted():
    setting = "mount -t proc -o hidepid=2 p /proc && mount --bind /dev/null /proc/version"
    _, ends = in_turn("a user", setting)
    for name in (*HOARDERS, *HONEST):
        assert ends[name][0] == "error" and "memory cannot be limited" in ends[name][1], ends[name]


@pytest.mark.slow
def test_without_namespaces_there_are_no_sockets_to_count():
    setting = "echo 0 > /proc/sys/user/max_user_namespaces"
    protected, ends = in_turn(None, setting, unprotected=True)
    assert protected == [False, True]
    for name in HOARDERS:
        if "device of zeros" not in name:  # the program sees this machine's files
            assert ends[name][0] not in ("END", "error"), (name, ends[name])
    for name in HONEST:
        if name not in ("an event loop", "pipes and sockets"):
            assert ends[name][0] == "END", (name, ends[name])
