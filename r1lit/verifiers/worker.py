"""The loop of every worker process, and the math worker.

A worker answers requests over one pipe until its parent closes it. Its script runs this file by its
path: the package's own import takes a second. It uses JSON. First it sends ``{}`` or ``{"failed":
traceback}``. Then it answers each request with one reply. A request holds what the script needs,
and its time limit in seconds, ``patience``.
"""

from __future__ import annotations

import contextlib
import json
import logging
import signal
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

MAX_BYTES = 2 * 1024**3


def serve(start: Callable[[], None], decide: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Run ``start`` once, then ``decide`` for every request on the pipe ``sys.argv[1]`` names.

    What ``decide`` raises makes the item an ``error``, or a ``timeout`` if its class is called so:
    libraries have time limits of their own, whose exceptions share no base class.

    The parent kills a worker that is late; should the parent be gone, an alarm set to ``patience``
    ends the process, also in the middle of a long multiplication.
    """
    import resource

    connection = Connection(int(sys.argv[1]))
    # Not every system has it; without it a hungry answer still ends at the time limit.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
    try:
        start()
        connection.send_bytes(b"{}")
    except Exception:
        connection.send_bytes(json.dumps({"failed": traceback.format_exc()}).encode())
        return
    while True:
        try:
            request = json.loads(connection.recv_bytes())
        except EOFError:
            return
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # the last item may have changed it
        signal.setitimer(signal.ITIMER_REAL, request["patience"])
        try:
            reply = decide(request)
        except BaseException as error:  # whatever is raised on what a model wrote is reported
            reason = f"{type(error).__name__} while deciding: {error}"[:200]
            reply = {"status": _status_of(error), "canonical": None, "reason": reason}
        signal.setitimer(signal.ITIMER_REAL, 0)
        connection.send_bytes(json.dumps(reply).encode())


def _status_of(error: BaseException) -> str:
    names = [kind.__name__.lower() for kind in type(error).__mro__]
    return "timeout" if any("timeout" in name for name in names) else "error"


# the math worker: {"answer", "gold"} is answered with {"status", "canonical", "reason"}


WARM_UP = ("1", r"\frac{1}{2}", "x^2+1", "(1,2)", "[0,5)", "y=2x", "1,2", r"\sqrt{2}", r"\text{a}")
"""Texts of the commonest forms: the grammar is slow at the first of each."""


def _start_math() -> None:
    """Load math-verify and compile its grammar, before the clock runs.

    Its own time limits are off: the pool has better ones.
    """
    from r1lit.verifiers.math_reading import readings

    # sympy prints integers of any size in its errors and reprs
    sys.set_int_max_str_digits(0)
    logging.disable(logging.CRITICAL)
    for text in WARM_UP:
        readings(text)


def _decide_math(request: dict[str, str]) -> dict[str, str | None]:
    from r1lit.verifiers.math_decision import decide

    return decide(request["answer"], request["gold"])


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[2]))
    serve(_start_math, _decide_math)
