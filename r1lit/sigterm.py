"""SIGTERM, which schedulers, spot instances and ``timeout`` send some time before SIGKILL."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LIMIT_S = 9.0
"""Seconds after SIGTERM in which a command ends, whatever it waits for."""


@contextmanager
def calling_on_sigterm(react: Callable[[], None]) -> Iterator[None]:
    """Call a function in a thread of its own when SIGTERM comes, once.

    Python's own handlers wait until the main thread leaves native code, which may wait for another
    rank. This needs such a handler to be there, or the signal ends the process. Outside of the main
    thread, and where there are no such signals, nothing is done.
    """
    if threading.current_thread() is not threading.main_thread() or os.name != "posix":
        yield
        return
    ours, signals = socket.socketpair()
    signals.setblocking(False)

    def wait() -> None:
        while received := ours.recv(1):
            if received[0] == signal.SIGTERM:
                return react()

    before = signal.set_wakeup_fd(signals.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=wait, daemon=True, name="sigterm").start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        signals.close()  # the thread reads the end, and is done


def end_after(seconds: float = LIMIT_S) -> None:
    """End this process with SIGTERM's status, 143, unless it has ended before."""
    time.sleep(seconds)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(128 + signal.SIGTERM)
