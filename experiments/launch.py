"""Locks and processes: what the sweep and the pipeline share."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from r1lit.sandbox import kernel


@contextmanager
def held(lock: Path, *, wait_s: float = 0.0) -> Iterator[IO[str] | None]:
    """Hold the lock on a file; yields None if another process still holds it after ``wait_s``.

    A killed process lets go. One that inherits the yielded file holds the lock too while it lives.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + wait_s
    with lock.open("a") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    yield None
                    return
                time.sleep(0.1)
        yield file


def start(
    command: Sequence[str],
    log: Path,
    *,
    environment: Mapping[str, str] | None = None,
    keep: Sequence[IO[str]] = (),
) -> subprocess.Popen[bytes]:
    """Start a command in a session of its own, appending what it prints to ``log``.

    On Linux it is killed when the thread that started it ends, however that ends.

    Args:
        command: the program and its arguments.
        log: both its output streams go there.
        environment: of the process; this one's if left out.
        keep: files that the process holds open, for their locks.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as file:
        return subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=None if environment is None else dict(environment),
            pass_fds=[file.fileno() for file in keep],
            start_new_session=True,
            preexec_fn=kernel.die_with_parent if sys.platform == "linux" else None,
        )
