"""The code worker: a process that grades programs until its pipe closes.

It is run as a file by a pool of workers and imports nothing but the standard library and this room.
With ``remote`` as its second argument, programs run on the Piston server that a request names.
It uses JSON over one pipe. First it sends ``{}`` or ``{"refused": reason}``; then each
``{"kind": …, "limits": …, …}`` is answered with ``{"status": …, "value": …, "reason": …}``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from r1lit.sandbox import grading, repository
from r1lit.sandbox.base import Limits, SandboxError
from r1lit.sandbox.local import LocalSandbox
from r1lit.sandbox.piston import PistonSandbox

Grader = Callable[[Mapping[str, Any], Limits], dict[str, Any]]


def serve(
    connection: Connection, graders: Mapping[str, Grader], start: Callable[[], object]
) -> None:
    """Answer requests, by the grader of their ``kind``, until the parent closes the pipe."""
    try:
        start()  # before the clock runs
    except SandboxError as error:
        connection.send_bytes(json.dumps({"refused": str(error)}).encode())
        return
    connection.send_bytes(b"{}")
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    while True:
        try:
            request = json.loads(connection.recv_bytes())
        except EOFError:
            return
        signal.setitimer(signal.ITIMER_REAL, request["patience"])
        try:
            reply = graders[request["kind"]](request, Limits(**request["limits"]))
        except SandboxError as error:
            reply = {"status": "error", "value": 0.0, "reason": str(error)[:300]}
        # a program's words may hold what no file in UTF-8 can
        reply["reason"] = reply["reason"].encode("utf-8", "replace").decode()
        signal.setitimer(signal.ITIMER_REAL, 0)
        connection.send_bytes(json.dumps(reply).encode())


def _grade_remotely(request: Mapping[str, Any], limits: Limits) -> dict[str, Any]:
    return grading.grade_output(PistonSandbox(request["piston"]), request, limits)


if __name__ == "__main__":
    os.umask(0o077)
    pipe = Connection(int(sys.argv[1]))
    if sys.argv[2:] == ["remote"]:
        serve(pipe, {"stdin": _grade_remotely}, start=lambda: None)
    else:
        with LocalSandbox() as sandbox:
            graders: dict[str, Grader] = {
                "functional": partial(grading.grade_functions, sandbox),
                "repository": partial(repository.grade, sandbox),
                "stdin": partial(grading.grade_output, sandbox),
            }
            serve(pipe, graders, start=lambda: sandbox.open(1 << 20).close())
