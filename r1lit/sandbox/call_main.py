"""The program that calls functions of a repository, inside a sandbox: ``main.py`` there.

It reads one JSON object: the ``folder`` of the repository, ``roots`` to import from, ``calls`` as
module, function and packed arguments, ``seconds`` for a call (0 for no limit) and ``total_s``,
after which no further call begins (0 for none). It prints one: ``outcomes``, and ``packages``,
those that were imported. An outcome is a packed tuple of ``returned``, the result, and the
arguments as the call left them; or ``["raised", class]``; or ``["none", reason]``.

Nothing in this process is secret: it has no expected value, no test and no key.
"""

import json
import os
import signal
import sys
import time
from typing import Any

from r1lit.sandbox import packing

MAX_CHARACTERS = 20_000
NO_OUTCOME = (MemoryError, RecursionError)


class TooLong(BaseException):
    """A call has used up its time."""


def _stop(*_: object) -> None:
    raise TooLong


def outcome_of(module: str, name: str, arguments: str) -> str:
    """Return a call's outcome, as JSON text."""
    try:
        function = packing.callee(module, name)
        positional, keywords = packing.unpack(arguments)
    except Exception as error:
        return json.dumps(["none", f"cannot be called: {error!r}"[:300]])
    try:
        result = function(*positional, **keywords)
        text = packing.pack_outcome(("returned", result, positional, keywords))
    except packing.NotPlainData as error:
        return json.dumps(["none", str(error)[:300]])
    except NO_OUTCOME as error:
        return json.dumps(["none", type(error).__name__])
    except (Exception, SystemExit) as error:
        return json.dumps(["raised", f"{type(error).__module__}.{type(error).__qualname__}"])
    return text if len(text) <= MAX_CHARACTERS else json.dumps(["none", "a long result"])


def outcomes_of(calls: list[list[str]], seconds: float, total_s: float) -> list[str]:
    """Return the calls' outcomes, in order; calls that take too long or come too late have none."""
    end = time.monotonic() + total_s
    found = []
    for call in calls:
        if total_s and time.monotonic() > end:
            found.append(json.dumps(["none", "too late"]))
            continue
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds)
            text = outcome_of(*call)
            signal.setitimer(signal.ITIMER_REAL, 0)
        except TooLong:
            text = json.dumps(["none", "too long"])
        found.append(text)
    return found


def main() -> None:
    """Make the calls and print what they come to."""
    request: dict[str, Any] = json.loads(sys.stdin.read())
    answer = os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    sys.dont_write_bytecode = True
    sys.path[:0] = [f"{request['folder']}/{root}".rstrip("/") for root in request["roots"]]
    if request["seconds"]:
        signal.signal(signal.SIGALRM, _stop)
    texts = outcomes_of(request["calls"], request["seconds"], request["total_s"])
    packages = json.dumps(packing.packages_in_use())
    reply = memoryview(f'{{"outcomes": [{", ".join(texts)}], "packages": {packages}}}'.encode())
    while reply:
        reply = reply[os.write(answer, reply) :]
    os._exit(0)


if __name__ == "__main__":
    main()
