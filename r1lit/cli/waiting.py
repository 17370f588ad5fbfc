"""A sign of life in a terminal, while something takes seconds and prints nothing."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

CLEAR_LINE = "\r\x1b[K"


@contextmanager
def counting_seconds(what: str) -> Iterator[None]:
    """Show ``what`` and the seconds that it has taken; the line is cleared at the end.

    Nothing is shown where stderr is no terminal, and on ranks after the first.
    """
    if not sys.stderr.isatty() or os.environ.get("LOCAL_RANK", "0") != "0":
        yield
        return
    stream, started, done = sys.stderr, time.monotonic(), threading.Event()

    def count() -> None:
        while not done.is_set():
            seconds = time.monotonic() - started
            stream.write(f"{CLEAR_LINE}{what} … {seconds:.0f} s")
            stream.flush()
            done.wait(1.0)

    thread = threading.Thread(target=count, daemon=True, name="counting-seconds")
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        stream.write(CLEAR_LINE)
        stream.flush()
