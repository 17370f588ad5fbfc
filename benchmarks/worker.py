"""One side of a comparison, in a process of its own that works only when it is told to.

    with Worker("benchmarks.ours:run_rollout", work=work) as ours:
        ours.step()    # {"seconds": 1.93, ...}

Both sides stay loaded and warm while their steps alternate. A side that waits uses no processor,
so memory and threads are each side's own. The target is called as ``target(gate, **settings)`` and
calls ``gate.wait()`` before and ``gate.report(seconds=...)`` after each step. Standard library
only: vLLM's own Python runs this file too.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TAIL = 2000
PR_SET_PDEATHSIG = 1
# glibc gives blocks above 32 MB back to the system each time, and page faults then take most of a
# step: without these, Hugging Face's generate is up to six times slower. Both sides get them.
ALLOCATOR = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(64 * 2**30)}


class Finished(Exception):
    """Raised by ``Gate.wait`` when no further step is wanted."""


class WorkerError(RuntimeError):
    """A worker died, or did not answer in time."""


def peak_rss_mb() -> float:
    """Return the process's largest resident memory so far.

    Under Linux not getrusage's, which begins with that of the parent.
    """
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    (peak,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(peak.split()[1]) / 1024


def reset_peak_rss() -> float:
    """Let ``peak_rss_mb`` begin anew (Linux); return what is resident now."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak_rss_mb()


class Gate:
    """Through which a worker is told to go on, and reports what a step took."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._imports_mb = peak_rss_mb()

    def wait(self) -> None:
        """Wait until the next step is wanted.

        Raises:
            Finished: if none is.
        """
        try:
            message = self._connection.recv()
        except EOFError:
            message = "stop"
        if message != "step":
            raise Finished

    def report(self, **result: Any) -> None:
        """Send a step's result, with the process's largest resident memory so far.

        ``above_imports_mb`` is what of it came after the target's module was imported.
        """
        peak = peak_rss_mb()
        memory = {"peak_rss_mb": peak, "above_imports_mb": peak - self._imports_mb}
        self._connection.send({**memory, **result})

    def __iter__(self) -> Iterator[None]:
        """Yield once a step."""
        while True:
            try:
                self.wait()
            except Finished:
                return
            yield


class Worker:
    """A child process that makes one step at a time.

    Args:
        target: "module:function".
        python: the interpreter; this one if left out.
        environment: variables that the child gets on top of ``ALLOCATOR``.
        timeout: seconds after which a step has failed; the first includes loading the model.
        settings: the target's keyword arguments.
    """

    def __init__(
        self,
        target: str,
        *,
        python: str = sys.executable,
        environment: dict[str, str] | None = None,
        timeout: float = 1800,
        **settings: Any,
    ) -> None:
        self.target = target
        self.timeout = timeout
        self._folder = tempfile.TemporaryDirectory(prefix="r1lit-bench-")
        address = str(Path(self._folder.name) / "socket")
        self._log = (Path(self._folder.name) / "log").open("w+")
        listener = Listener(address, "AF_UNIX")
        self._process = subprocess.Popen(
            [python, "-m", "benchmarks.worker", address],
            stdout=self._log,
            stderr=subprocess.STDOUT,
            cwd=os.getcwd(),
            env={**os.environ, **ALLOCATOR, "PYTHONPATH": python_path(), **(environment or {})},
        )
        # accept() has no time-out, and a child that cannot start would never connect
        listener._listener._socket.settimeout(60)  # type: ignore[attr-defined]
        try:
            self._connection = listener.accept()
        except TimeoutError as error:
            raise self._error("did not start") from error
        finally:
            listener.close()
        self._connection.send((target, settings))

    def step(self) -> dict[str, Any]:
        """Make one step and return what the target reported.

        Raises:
            WorkerError: if the child died or the time is up, with the end of what it printed.
        """
        try:
            self._connection.send("step")
            if not self._connection.poll(self.timeout):
                raise self._error(f"did not answer within {self.timeout:.0f} s")
            return self._connection.recv()
        except (EOFError, ConnectionError) as error:
            code = self._process.wait(timeout=10)
            raise self._error(f"died with exit status {code}") from error

    def close(self) -> None:
        """Let the child end; a child that does not is killed."""
        try:
            self._connection.send("stop")
            self._process.wait(timeout=30)
        except (ConnectionError, AttributeError):
            pass
        except subprocess.TimeoutExpired:
            pass
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._log.close()
        self._folder.cleanup()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _error(self, what: str) -> WorkerError:
        self._log.flush()
        text = Path(self._log.name).read_text(errors="replace")
        return WorkerError(f"{self.target} {what}; the end of its output:\n{text[-TAIL:]}")


def python_path() -> str:
    """Return this repository and what PYTHONPATH names already, for a child."""
    return os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))


def end_with_parent() -> None:
    """Let the kernel end this process with its parent: an interrupted run leaves nobody busy."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main(address: str) -> None:
    """Run the target that the parent names."""
    end_with_parent()
    connection = Client(address, "AF_UNIX")
    target, settings = connection.recv()
    module, function = target.split(":")
    try:
        getattr(importlib.import_module(module), function)(Gate(connection), **settings)
    except Finished:
        pass
    finally:
        connection.close()


if __name__ == "__main__":
    main(sys.argv[1])
