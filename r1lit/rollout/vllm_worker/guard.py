"""Runs a command, and ends all of its processes on SIGTERM or when its parent is gone.

    python -I guard.py PARENT COMMAND …

A server on a GPU must not outlive a trainer that was killed. Linux's death signal goes with the
thread that started a child, so the parent's process is looked at instead.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time


def main() -> int:
    """Return the command's exit status."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    received: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which sends SIGTERM
    process = subprocess.Popen(command, start_new_session=True)
    while process.poll() is None and not received and os.getppid() == parent:
        time.sleep(0.2)
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(10)
        except ProcessLookupError:
            break
        except subprocess.TimeoutExpired:
            continue
    return process.wait()


if __name__ == "__main__":
    sys.exit(main())
