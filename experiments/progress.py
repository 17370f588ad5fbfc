"""How far a run is, read from the log that it writes."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

TAIL = 1 << 14  # bytes read at the end of a log
_ITERATION = re.compile(rb"iteration (\d+)/(\d+)([^\r\n]*)")
_BAR = re.compile(rb"\b(\d+)/(\d+) \[")


@contextmanager
def followed(log: Path, show: Callable[[str], None], every_s: float) -> Iterator[None]:
    """Call ``show`` with the last status line that is written to ``log``, whenever it is a new one.

    ``show`` is called from a thread, at most every ``every_s`` seconds; what the log says already
    is not shown.
    """
    start = log.stat().st_size if log.is_file() else 0
    ended = threading.Event()

    def follow() -> None:
        shown = None
        while not ended.wait(every_s):
            progress = progress_of(log, start)
            if progress is not None and progress != shown:
                shown = progress
                show(f"{progress[0]:.0%}  {progress[1]}".rstrip())

    thread = threading.Thread(target=follow, name=f"follow {log}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def progress_of(log: Path, start: int = 0) -> tuple[float, str] | None:
    """Return the share done and the last status line of a log, read from byte ``start`` on.

    It knows the lines of `R1ProgressBar` and tqdm's bars; None before the first of them.
    """
    tail = _tail(log, start)
    lines = [(m.start(), m) for m in (*_ITERATION.finditer(tail), *_BAR.finditer(tail))]
    if not lines:
        return None
    match = max(lines, key=lambda pair: pair[0])[1]
    done, total = int(match[1]), int(match[2])
    text = match[3].decode(errors="replace").strip() if match.re is _ITERATION else ""
    return (min(1.0, done / total) if total else 0.0), text


def last_lines(log: Path, count: int = 20) -> list[str]:
    """Return the last lines of a log, each as a terminal would leave it."""
    tail = _tail(log).decode(errors="replace")
    lines = [line.split("\r")[-1].rstrip() for line in tail.replace("\r\n", "\n").split("\n")]
    return [line for line in lines if line][-count:]


def _tail(log: Path, start: int = 0) -> bytes:
    """Return the last `TAIL` bytes of a log, of those from ``start`` on; none without a log."""
    if not log.is_file():
        return b""
    with log.open("rb") as file:
        file.seek(max(start, file.seek(0, 2) - TAIL))
        return file.read()
