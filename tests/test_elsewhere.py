"""r1lit can be imported on macOS and Windows, and says in one line what it cannot do there."""

from __future__ import annotations

import subprocess
import sys
from multiprocessing import Pipe
from pathlib import Path

import pytest

from r1lit.sandbox import SandboxError, worker
from r1lit.sandbox.confine import lacking
from r1lit.verifiers.pool import WorkerPool

SCRIPT = Path(__file__).with_name("elsewhere.py")
ISOLATE = "SandboxError: this machine cannot isolate programs: "
ON_LINUX = (
    "has no namespaces, seccomp filter or /proc; run r1lit on Linux (on macOS in a container, on"
    " Windows in WSL), or stdin_code with a Piston server"
)
NOT_HERE = "needs Linux or macOS; on Windows run r1lit in WSL"
ANSWERS = {
    "darwin": {"sandbox": f"{ISOLATE}macOS {ON_LINUX}", "lock": "held", "math": "right"},
    "win32": {
        "sandbox": f"{ISOLATE}Windows {ON_LINUX}",
        "lock": f"ValueError: the lock of a folder {NOT_HERE}",
        "math": f"ValueError: a verifier's process {NOT_HERE}",
        "memory": "[]",
    },
}


@pytest.mark.long
@pytest.mark.parametrize("system", ANSWERS)
def test_every_module_can_be_imported(system: str):
    command = [sys.executable, str(SCRIPT), system]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    first, *answers = done.stdout.splitlines()
    number, _, of, _ = first.split(maxsplit=3)
    assert done.returncode == 0 and number == of and int(of) > 200, (
        done.stdout + done.stderr[-3000:]
    )
    assert ANSWERS[system].items() <= dict(line.split(": ", 1) for line in answers).items()


def test_a_machine_whose_system_calls_are_unknown_is_named(monkeypatch):
    assert lacking() == ""
    monkeypatch.setattr("r1lit.sandbox.confine.MACHINE", "riscv64")
    assert lacking() == "there is a seccomp filter for x86_64 and aarch64, none for riscv64"


def test_a_verifier_without_a_sandbox_ends_in_one_line(tmp_path):
    """The worker sends the sandbox's own line, and the pool raises it as bad input."""

    def start() -> None:
        raise SandboxError("no namespaces here")

    ours, theirs = Pipe()
    worker.serve(theirs, {}, start)
    assert ours.recv_bytes() == b'{"refused": "no namespaces here"}'
    script = tmp_path / "worker.py"
    script.write_text(
        "import sys\nfrom multiprocessing.connection import Connection\n"
        'Connection(int(sys.argv[1])).send_bytes(b\'{"refused": "no namespaces here"}\')'
    )
    with pytest.raises(ValueError, match=r"^no namespaces here$"):
        WorkerPool(script, num_workers=1, timeout_s=1.0).run([{}])
