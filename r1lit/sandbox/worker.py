"""The code worker: a process that judges programs until its pipe closes.

It is run as a file by a pool of workers and imports nothing but the standard library and this room.
It speaks JSON over one pipe. First it says ``{}`` or ``{"failed": traceback}``; then each
``{"kind": …, "limits": …, …}`` is answered with ``{"status": …, "value": …, "reason": …}``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from r1lit.sandbox import functional, stdin_tests
from r1lit.sandbox.base import Limits, SandboxError
from r1lit.sandbox.local import LocalSandbox

JUDGES = {"functional": functional.judge, "stdin": stdin_tests.judge}


def serve(connection: Connection) -> None:
    """Answer requests until the parent closes the pipe."""
    sandbox = LocalSandbox()
    try:
        sandbox.open(1 << 20).close()  # before the clock runs
    except SandboxError:
        connection.send_bytes(json.dumps({"failed": traceback.format_exc(limit=-1)}).encode())
        return
    connection.send_bytes(b"{}")
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    while True:
        try:
            request = json.loads(connection.recv_bytes())
        except EOFError:
            sandbox.close()
            return
        signal.setitimer(signal.ITIMER_REAL, request["patience"])
        try:
            reply = JUDGES[request["kind"]](sandbox, request, Limits(**request["limits"]))
        except SandboxError as error:
            reply = {"status": "error", "value": 0.0, "reason": str(error)[:300]}
            sandbox.close()
        signal.setitimer(signal.ITIMER_REAL, 0)
        connection.send_bytes(json.dumps(reply).encode())


if __name__ == "__main__":
    os.umask(0o077)
    serve(Connection(int(sys.argv[1])))
