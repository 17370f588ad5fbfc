"""One side of a comparison, in a process of its own that works only when it is told to.

    with Worker("benchmarks.ours:run_rollout", work=work) as ours:
        ours.step()    # {"seconds": 1.93, ...}

This is how every side is started, timed and reported, ours and each peer's. Both stay loaded and
warm while their steps alternate. A side that waits uses no processor, so memory and threads are
each side's own. The target is called as ``target(gate, **settings)``. It calls ``gate.wait()``
before a step, which starts the clock, and ``gate.report(...)`` after it. Standard library only:
vLLM's own Python runs this file too.
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
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
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


def cuda() -> Any:
    """Return ``torch.cuda`` if this process computes on such a device."""
    torch = sys.modules.get("torch")
    return torch.cuda if torch is not None and torch.cuda.is_initialized() else None


class Stopwatch:
    """Seconds since it was made; waits for the device's queue first."""

    def __init__(self) -> None:
        self._synchronise()
        self._started = time.perf_counter()

    def seconds(self) -> float:
        """Return the seconds since the start."""
        self._synchronise()
        return time.perf_counter() - self._started

    def _synchronise(self) -> None:
        if device := cuda():
            device.synchronize()


class Gate:
    """Through which a worker is told to go on, and reports what a step took."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._imports_mb = peak_rss_mb()
        self._clocks: dict[str, float] = {}

    def wait(self) -> None:
        """Wait until the next step is wanted, then start the clock.

        Raises:
            Finished: if none is.
        """
        try:
            message = self._connection.recv()
        except EOFError:
            message = "stop"
        if message != "step":
            raise Finished
        self.start()

    def start(self) -> None:
        """Start the clock again: what was prepared since ``wait`` does not count."""
        self._clocks = {}
        self._cpu_started = time.process_time()
        self._stopwatch = Stopwatch()

    def stop(self) -> float:
        """Stop the clock and return its seconds: what comes before ``report`` does not count."""
        seconds = self._stopwatch.seconds()
        self._clocks = {"seconds": seconds, "cpu_s": time.process_time() - self._cpu_started}
        return seconds

    def report(self, **result: Any) -> None:
        """Send a step's result, with its seconds and the largest memory so far.

        ``cpu_s`` are the process's own, ``above_imports_mb`` is what of its memory came after the
        target's module was imported.
        """
        if not self._clocks:
            self.stop()
        peak = peak_rss_mb()
        memory = {"peak_rss_mb": peak, "above_imports_mb": peak - self._imports_mb}
        if device := cuda():
            memory["peak_device_mb"] = device.max_memory_allocated() / 2**20
        found = {**memory, **self._clocks, **result}
        if "num_tokens" in found:
            found["seconds_per_1000_tokens"] = 1000 * found["seconds"] / found["num_tokens"]
        self._connection.send(found)

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
        environment: variables that the child gets on top of ``ALLOCATOR``; None leaves one out.
        timeout: seconds after which a step has failed; the first includes loading the model.
        settings: the target's keyword arguments.
    """

    def __init__(
        self,
        target: str,
        *,
        python: str = sys.executable,
        environment: Mapping[str, str | None] | None = None,
        timeout: float = 1800,
        **settings: Any,
    ) -> None:
        self.target = target
        self.timeout = timeout
        self._log = tempfile.NamedTemporaryFile("w+")  # noqa: SIM115 - close() closes it
        variables = {**os.environ, **ALLOCATOR, "PYTHONPATH": python_path(), **(environment or {})}
        self._connection, of_child = Pipe()
        with of_child:
            self._process = subprocess.Popen(
                [python, "-m", "benchmarks.worker", str(of_child.fileno())],
                pass_fds=[of_child.fileno()],
                stdout=self._log,
                stderr=subprocess.STDOUT,
                env={name: value for name, value in variables.items() if value is not None},
            )
        try:
            self._connection.send((target, settings))
        except ConnectionError as error:
            raise self._died() from error

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
            raise self._died() from error

    def close(self) -> None:
        """Let the child end; a child that does not is killed."""
        with suppress(ConnectionError, subprocess.TimeoutExpired):
            self._connection.send("stop")
            self._process.wait(timeout=30)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._connection.close()
        self._log.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _died(self) -> WorkerError:
        return self._error(f"died with exit status {self._process.wait(timeout=10)}")

    def _error(self, what: str) -> WorkerError:
        text = Path(self._log.name).read_text(errors="replace")
        return WorkerError(f"{self.target} {what}; the end of its output:\n{text[-TAIL:]}")


def python_path() -> str:
    """Return this repository and what PYTHONPATH names already, for a child."""
    return os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))


def end_with_parent() -> None:
    """Let the kernel end this process with its parent: an interrupted run leaves nobody busy."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main(file_descriptor: int) -> None:
    """Run the target that the parent names."""
    end_with_parent()
    with Connection(file_descriptor) as connection, suppress(Finished):
        target, settings = connection.recv()
        module, function = target.split(":")
        run = getattr(importlib.import_module(module), function)
        run(Gate(connection), **settings)


if __name__ == "__main__":
    main(int(sys.argv[1]))
