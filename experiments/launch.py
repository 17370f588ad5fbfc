"""Processes, locks and logs: what the sweep, the pipeline and the studies share."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import IO, ParamSpec

from r1lit.console import end_output, nobody_reads
from r1lit.files import held, replace_file
from r1lit.sandbox import confine

P = ParamSpec("P")
Launch = Callable[[list[str], Path], int]
"""Runs a command of ``r1lit``, with its log; returns the exit status."""
PEAK_MEMORY = "peak_memory.txt"
LINE_S = 60.0  # between two looks at a log
TAIL = 1 << 14  # bytes read at the end of a log
_ITERATION = re.compile(rb"iteration (\d+)/(\d+)([^\r\n]*)")
_BAR = re.compile(rb"\b(\d+)/(\d+) \[")


def reported(name: str) -> Callable[[Callable[P, int]], Callable[P, int]]:
    """Return a decorator of what returns an exit status: 2 for bad input, 130 for Ctrl-C.

    A reader of the output that has gone, such as ``head``, ends it without a word and with 141.

    Args:
        name: begins the line on stderr. With ``R1LIT_TRACEBACK`` in the environment an error ends
            in its traceback.
    """

    def decorate(main: Callable[P, int]) -> Callable[P, int]:
        @wraps(main)
        def run(*args: P.args, **kwargs: P.kwargs) -> int:
            try:
                status = main(*args, **kwargs)
                print(end="", flush=True)
                return status
            except (ValueError, OSError) as error:
                if isinstance(error, BrokenPipeError) and nobody_reads():
                    return 141
                if os.environ.get("R1LIT_TRACEBACK"):
                    raise
                print(f"{name}: error: {error}", file=sys.stderr)
                return 2
            except KeyboardInterrupt:
                print(f"{name}: stopped; the same command goes on from here", file=sys.stderr)
                return 130
            finally:
                end_output()

        return run

    return decorate


def command_line(module: str, about: str | None) -> argparse.ArgumentParser:
    """Return the parser of ``python -m module``; its help shows ``about`` with its line breaks."""
    return argparse.ArgumentParser(
        prog=f"python -m {module}",
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


@contextmanager
def claimed(folder: Path, wait_s: float = 0.0) -> Iterator[bool]:
    """Hold the lock on a folder; False while another process holds it. A killed one lets go."""
    with held(folder.with_name(f".{folder.name}.lock"), wait_s=wait_s) as file:
        yield file is not None


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
            preexec_fn=confine.die_with_parent if sys.platform == "linux" else None,
        )


def in_subprocess(arguments: list[str], log: Path) -> int:
    """Call ``r1lit.cli.main(arguments)`` in a fresh interpreter; return its exit status.

    A process a point: it starts from nothing, as by hand, gives its memory back, and takes only
    itself down. It costs the seconds of an import. The most memory that it held, in bytes, is
    written beside the log. Lightning repeats its command line for further ranks, and would take
    the tasks of a SLURM job for ranks, so it is not told of any.
    """
    kept = {key: value for key, value in os.environ.items() if not key.startswith("SLURM_")}
    command = [sys.executable, "-m", "r1lit.cli", *arguments]
    process = start(command, log, environment=kept | {"R1LIT_TRACEBACK": "1"})
    try:
        _, status, used = os.wait4(process.pid, 0)
    except BaseException:
        process.kill()
        raise
    process.returncode = os.waitstatus_to_exitcode(status)
    unit = 1 if sys.platform == "darwin" else 1024
    replace_file(log.with_name(PEAK_MEMORY), str(used.ru_maxrss * unit).encode())
    return process.returncode


def error_in(log: Path, status: int) -> str:
    """Return in one line why a run failed: the last error in its log, or else its exit status."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    for line in reversed(lines):
        if re.match(r"[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit)\b", line):
            return line
    said = next((line.strip() for line in reversed(lines) if line.strip()), "nothing in its log")
    return f"{said} (killed by signal {-status})" if status < 0 else f"{said} (status {status})"


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


def shown(launch: Launch, show: Callable[[str], None], every_s: float) -> Launch:
    """Return ``launch`` with ``show`` called on the status of its run."""

    def run(arguments: list[str], log: Path) -> int:
        with followed(log, show, every_s):
            return launch(arguments, log)

    return run


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
