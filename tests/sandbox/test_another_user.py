"""The sandbox holds for a user who is not root, and so has no user ids to spare."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sandbox.leftovers import descendants, strangers

pytestmark = pytest.mark.alone

SCRIPT = Path(__file__).with_name("as_another_user.py")
USER = "54321"
BECOME = {
    "a user": ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"],
    "root's namesake in a user namespace": [
        "unshare",
        "--user",
        "--map-user=54321",
        "--map-group=54321",
    ],
}
PYTHONS = (os.path.realpath(getattr(sys, "_base_executable", sys.executable)), "/usr/bin/python3")
FOLDERS = {"PYTHONPATH": os.pathsep.join(map(str, (SCRIPT.parents[2], SCRIPT.parents[1])))}
USABLE = """
import subprocess, sys
import r1lit.sandbox
assert sys.version_info >= (3, 11)
subprocess.run([sys.executable, "-c", ""], check=True)
"""


def command(how: str) -> list[str] | None:
    """Return how to run a Python as somebody else, ``None`` where that cannot be done."""
    become = BECOME[how] if os.geteuid() == 0 else []
    for python in PYTHONS:
        asked = [*become, python, "-P", "-c", USABLE]
        try:
            done = subprocess.run(asked, capture_output=True, env={**os.environ, **FOLDERS})
        except OSError:
            continue
        if done.returncode == 0:
            return [*become, python, "-P", str(SCRIPT)]
    return None


def judged(how: str, limit: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Run attacks as somebody else; return who and what protected, and the verdicts."""
    start = command(how)
    if start is None:
        pytest.skip(f"this machine lets no Python run as {how}")
    before = descendants()
    done = subprocess.run(
        [*start, str(limit)], capture_output=True, text=True, env={**os.environ, **FOLDERS}
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert descendants() == before and not strangers()
    first, *verdicts = map(json.loads, done.stdout.splitlines())
    return first, verdicts


def assert_held(how: str, limit: int) -> int:
    first, verdicts = judged(how, limit)
    assert first["user"] == int(USER) or os.geteuid() != 0
    on = "\n".join(first["protections"])
    for word in ("network", "other processes", "files", "user namespace", "system call", "limits"):
        assert word in on
    for verdict in verdicts:
        expected = ("right",) if verdict["name"] == "honest" else ("wrong", "timeout")
        assert verdict["status"] in expected, verdict
        assert verdict["value"] == float(verdict["name"] == "honest"), verdict
    return len(verdicts)


@pytest.mark.parametrize("how", BECOME)
def test_it_holds_for_another_user(how):
    assert assert_held(how, 6) > 14


@pytest.mark.slow
@pytest.mark.parametrize("how", BECOME)
def test_every_attack_fails_for_another_user(how):
    assert assert_held(how, 1000) > 120
