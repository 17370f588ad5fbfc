"""Monitors one run of a program: feeds and reads its streams, enforces its limits, kills it."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import time
from collections.abc import Mapping
from typing import Any

from r1lit.sandbox.base import SandboxError

TICK_S = 0.05
NEARLY = 0.8  # the kernel's count for RLIMIT_CPU is coarser than the CPU time that it reports
_MEMORY = re.compile(r"^(?:RssAnon|RssShmem|VmSwap|VmPTE|HugetlbPages):\s+(\d+) kB", re.MULTILINE)
_CHUNK = 1 << 16


def _socket_bytes() -> int:
    """Return an upper bound of one socket's buffer: its limit plus one message."""
    try:
        with open("/proc/sys/net/core/wmem_default") as file:
            return 2 * int(file.read())
    except OSError:
        return 1 << 20


SOCKET_BYTES = _socket_bytes()  # of the launcher: a new network namespace may not show it


class Monitor:
    """Monitors the process ``program`` from the sandbox's init process.

    ``client`` is the socket whose closing ends the sandbox, ``proc`` a descriptor of a ``/proc``.
    With ``sockets``, those of this network namespace count as memory.
    """

    def __init__(
        self,
        program: int,
        limits: Mapping[str, int | float],
        proc: int,
        client: int,
        sockets: bool,
    ) -> None:
        self._sockets = sockets
        self._program = program
        self._limits = limits
        self._proc = proc
        self._client = client
        self._limit = ""

    def run_until_exit(
        self, stdin: int, stdout: int, stderr: int, text: bytes
    ) -> tuple[dict[str, Any], bytes, bytes]:
        """Feed and read the program until it exits, then kill all processes it left behind.

        Returns:
            The report that a frame's header carries, and what was kept of stdout and stderr.
        """
        start = time.monotonic()
        deadline = start + self._limits["wall_s"]
        kept = {stdout: bytearray(), stderr: bytearray()}
        unsent = memoryview(text)
        ended = os.pidfd_open(self._program)
        poll = select.poll()
        for descriptor in (stdin, stdout, stderr):
            os.set_blocking(descriptor, False)
        for descriptor in (stdout, stderr, ended):
            poll.register(descriptor, select.POLLIN)
        poll.register(self._client, select.POLLRDHUP)
        if unsent:
            poll.register(stdin, select.POLLOUT)
        else:
            os.close(stdin)
        running = True
        next_check = start
        while running:
            timeout_s = min(TICK_S, max(0.0, deadline - time.monotonic()))
            events = poll.poll(timeout_s * 1000)
            for descriptor, _ in events:
                if descriptor == self._client:
                    raise ConnectionResetError("the client has closed")
                elif descriptor == ended:
                    running = False
                elif descriptor == stdin:
                    unsent = self._write_stdin(stdin, unsent)
                    if not unsent:
                        poll.unregister(stdin)
                        os.close(stdin)
                elif not self._read(descriptor, kept[descriptor]):
                    poll.unregister(descriptor)
            if time.monotonic() >= deadline:
                self._limit = self._limit or "wall time"
            if time.monotonic() >= next_check:
                if self._memory() > self._limits["memory_bytes"]:
                    self._limit = self._limit or "memory"
                next_check = time.monotonic() + TICK_S
            if self._limit:
                running = False
        if unsent:
            os.close(stdin)
        status, cpu_s = self._kill_and_wait()
        seconds = time.monotonic() - start
        for descriptor, buffer in kept.items():
            self._read(descriptor, buffer)
            os.close(descriptor)
        os.close(ended)
        return self._report(status, cpu_s, seconds), bytes(kept[stdout]), bytes(kept[stderr])

    def _write_stdin(self, stdin: int, unsent: memoryview) -> memoryview:
        try:
            return unsent[os.write(stdin, unsent[:_CHUNK]) :]
        except BlockingIOError:
            return unsent
        except OSError:  # the program reads no further
            return unsent[:0]

    def _read(self, descriptor: int, buffer: bytearray) -> bool:
        """Read all bytes that are there; return whether more may come."""
        room = int(self._limits["output_bytes"])
        while True:
            try:
                part = os.read(descriptor, _CHUNK)
            except BlockingIOError:
                return True
            if not part:
                return False
            buffer += part[: room - len(buffer)]
            if len(buffer) >= room:
                self._limit = self._limit or "output"
                return False

    def _kill_and_wait(self) -> tuple[int, float]:
        """Kill every process but this one; return the program's wait status and CPU seconds."""
        if self._limit:
            kill_all()
        _, status, usage = os.wait4(self._program, 0)
        with contextlib.suppress(ChildProcessError):
            while True:
                kill_all()
                os.waitpid(-1, 0)
        return status, usage.ru_utime + usage.ru_stime

    def _memory(self) -> int:
        """Return the bytes that all processes but this one, and their sockets, hold.

        Raises:
            SandboxError: if ``/proc`` does not show the program's process.
        """
        processes = other_processes(self._proc)
        if not processes:
            raise SandboxError("/proc hides the program, so that its memory cannot be limited")
        total = sum(map(self._memory_of, processes)) << 10
        if self._sockets:
            total += SOCKET_BYTES * (self._read_proc("net/unix").count("\n") - 1)
        return total

    def _memory_of(self, process: int) -> int:
        """Return a process's memory in KiB, from another thread if its first one has exited."""
        with contextlib.suppress(OSError):  # it has just exited
            parts = _MEMORY.findall(self._read_proc(f"{process}/status"))
            if parts:
                return sum(map(int, parts))
            folder = os.open(f"{process}/task", os.O_RDONLY, dir_fd=self._proc)
            threads = os.listdir(folder)
            os.close(folder)
            for thread in threads:
                parts = _MEMORY.findall(self._read_proc(f"{process}/task/{thread}/status"))
                if parts:
                    return sum(map(int, parts))
        return 0

    def _read_proc(self, path: str) -> str:
        with open(os.open(path, os.O_RDONLY, dir_fd=self._proc)) as file:
            return file.read()

    def _report(self, status: int, cpu_s: float, seconds: float) -> dict[str, Any]:
        code = os.waitstatus_to_exitcode(status)
        # a program may catch SIGXCPU and then exit in any way, or be killed a second later
        used_up = cpu_s >= NEARLY * self._limits["cpu_s"]
        if code == -signal.SIGXCPU or (code != 0 and used_up):
            self._limit = self._limit or "CPU time"
        elif code == -signal.SIGXFSZ:
            self._limit = self._limit or "file size"
        return {
            "exit_code": code if code >= 0 else None,
            "signal": -code if code < 0 else None,
            "timed_out": self._limit in ("wall time", "CPU time"),
            "limit": self._limit,
            "seconds": seconds,
        }


def kill_all() -> None:
    """Kill all other processes of this process namespace, or all descendants outside of one."""
    if os.getpid() == 1:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        return
    proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    for process in other_processes(proc):
        with contextlib.suppress(OSError):
            os.kill(process, signal.SIGKILL)
    os.close(proc)


def other_processes(proc: int) -> list[int]:
    """Return the ids, in the ``/proc`` of descriptor ``proc``, of all other processes in here.

    If ``proc`` shows more than this process namespace, these are this process's descendants;
    orphans are among them, because this process adopts them.
    """
    parents = {}
    for name in os.listdir(proc):
        if name.isdigit():
            with contextlib.suppress(OSError):  # it has just exited
                descriptor = os.open(f"{name}/stat", os.O_RDONLY, dir_fd=proc)
                with open(descriptor) as file:
                    parents[int(name)] = int(file.read().rpartition(")")[2].split()[1])
    this = int(os.readlink("self", dir_fd=proc))
    if this == 1:
        return [process for process in parents if process != 1]
    found: set[int] = set()
    frontier = {this}
    while frontier:
        frontier = {child for child, parent in parents.items() if parent in frontier} - found
        found |= frontier
    return list(found)
