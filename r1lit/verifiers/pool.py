"""Killable worker processes with a time limit per item."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from r1lit.errors import check_above, check_at_least, check_posix

START_SECONDS = 120.0


@dataclass(frozen=True, kw_only=True)
class ItemReply:
    """Result of one item: the worker's own reply, or a ``timeout`` or ``error``."""

    content: Mapping[str, Any]
    seconds: float


class Call:
    """The requests of one caller, and the replies so far by their index."""

    def __init__(self, requests: Sequence[Mapping[str, Any]]) -> None:
        self.requests = requests
        self.todo = deque(range(len(requests)))
        self.replies: dict[int, ItemReply] = {}
        self.tried_again: set[int] = set()

    @property
    def over(self) -> bool:
        """True where every item has its reply."""
        return len(self.replies) == len(self.requests)


class Worker:
    """One process. It is starting, then by turns idle and busy with an item of a call."""

    def __init__(self, script: Path, arguments: Sequence[str]) -> None:
        check_posix("a verifier's process")
        self.connection, theirs = Pipe()
        with theirs:
            # -P: the script's folder must not shadow installed modules. A session of its own:
            # Ctrl-C is for the parent, which then closes the pool.
            self.process = subprocess.Popen(
                [sys.executable, "-P", str(script), str(theirs.fileno()), *arguments],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        self.starting = True
        self.item: tuple[Call, int] | None = None
        self.since = time.monotonic()
        self.deadline = self.since + START_SECONDS

    @property
    def idle(self) -> bool:
        """True where the worker can be sent an item."""
        return not self.starting and self.item is None

    def send(self, call: Call, index: int, timeout_s: float) -> None:
        """Send an item of ``call``."""
        # the worker's own alarm is later: it matters only where the parent has died
        message = json.dumps({**call.requests[index], "patience": 2 * timeout_s + 1})
        self.connection.send_bytes(message.encode())
        self.item = call, index
        self.since = time.monotonic()
        self.deadline = self.since + timeout_s

    def receive(self) -> dict[str, Any]:
        """Return the process's message."""
        content: dict[str, Any] = json.loads(self.connection.recv_bytes())
        return content

    def reply(self, content: Mapping[str, Any]) -> None:
        """Give ``content`` to the call whose item this is, and be idle."""
        assert self.item is not None
        call, index = self.item
        call.replies[index] = ItemReply(content=content, seconds=time.monotonic() - self.since)
        self.item = None

    def try_again(self) -> bool:
        """Put the item back for another worker, unless this was its second one."""
        assert self.item is not None
        call, index = self.item
        is_first = index not in call.tried_again
        if is_first:
            call.tried_again.add(index)
            call.todo.appendleft(index)
        return is_first

    def kill(self) -> None:
        """End the process, whatever it is at."""
        self.process.kill()
        self.process.wait()
        self.connection.close()


__all__ = ["MAX_FAILED_STARTS", "ItemReply", "WorkerPool"]

MAX_FAILED_STARTS = 3  # in a row, of which the last ends the run


class WorkerPool:
    """Runs requests through at most ``num_workers`` processes that execute ``script``.

    An item that hangs, crashes or eats its process's memory costs only itself: its worker is killed
    and the next item gets a fresh one. A worker may die for no fault of its item's (a machine short
    of memory), so that item is tried once more; a worker that dies starting is replaced, but not a
    third time in a row. Processes start at the first request. A pickled, copied or forked pool has
    no processes and starts its own. ``pids`` are the processes alive now.

    Threads may share a pool: free workers take an item of each caller by turns, so that neither a
    long list nor an item that hangs holds up another caller while there is a free worker. One of
    the callers at a time listens to the workers, for all.

    An item may take ``timeout_s`` and, where the script keeps to that limit itself and reports
    the item's outcome, ``grace_s`` more. The script gets ``arguments`` after its pipe's number.
    """

    def __init__(
        self,
        script: Path,
        num_workers: int,
        timeout_s: float,
        grace_s: float = 0.0,
        arguments: Sequence[str] = (),
    ) -> None:
        check_above("timeout_s", timeout_s, 0, finite=False)
        check_at_least("num_workers", num_workers, 1)
        self.script, self.arguments = script, tuple(arguments)
        self.num_workers = num_workers
        self.timeout_s = timeout_s + grace_s
        self._become_empty()

    def _become_empty(self) -> None:
        # entered as itself, not through the condition: Ctrl-C inside Condition.__enter__, which is
        # Python, would leave it locked for good
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._listener: Call | None = None
        self._calls: deque[Call] = deque()
        self._workers: list[Worker] = []
        self._failed_starts = 0
        self._bell, self._button = Pipe(duplex=False)
        self._pid = os.getpid()
        self._finalizer = weakref.finalize(self, _kill_all, self._workers, self._pid)

    def __getstate__(self) -> dict[str, Any]:
        return {k: getattr(self, k) for k in ("script", "arguments", "num_workers", "timeout_s")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._become_empty()

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        return [worker.process.pid for worker in self._workers]

    def run(self, requests: Sequence[Mapping[str, Any]]) -> list[ItemReply]:
        """Return one reply a request, in order.

        Raises:
            RuntimeError: if workers cannot start.
            ValueError: if this machine lacks what they need.
        """
        if self._pid != os.getpid():  # forked: the processes belong to the parent
            self._become_empty()
        call = Call(requests)
        with self._lock:
            self._calls.append(call)
            if self._listener is not None:
                self._button.send_bytes(b"")  # have it look up
        try:
            while self._listens(call):
                self._listen()
        finally:
            with self._lock:
                self._calls.remove(call)
                if self._listener is call:  # cut short, also by Ctrl-C: a reply may be half heard
                    self._start_afresh()
                    self._give_way()
        return [call.replies[index] for index in range(len(requests))]

    def close(self) -> None:
        """Kill the workers, once no item is waited for; a later ``run`` starts new ones."""
        if self._pid != os.getpid():
            return
        with self._lock:
            self._changed.wait_for(lambda: self._listener is None)
            self._start_afresh()

    def _listens(self, call: Call) -> bool:
        """Return whether ``call`` is to listen to the workers; else it is over."""
        with self._lock:
            if self._listener is call and call.over:
                self._give_way()
            self._changed.wait_for(lambda: call.over or self._listener in (call, None))
            if not call.over:
                self._listener = call
            return not call.over

    def _give_way(self) -> None:
        self._listener = None
        self._changed.notify_all()

    def _listen(self) -> None:
        """Send items out, and hear what comes back first."""
        with self._lock:
            self._start()
            self._dispatch()
            waiting = [worker for worker in self._workers if not worker.idle]
        patience = max(0.0, min(w.deadline for w in waiting) - time.monotonic())
        ready = wait([self._bell, *(worker.connection for worker in waiting)], patience)
        if self._bell in ready:
            self._bell.recv_bytes()
        for worker in waiting:
            if worker.connection in ready:
                self._hear(worker)
            elif time.monotonic() >= worker.deadline:
                self._give_up(worker)
        with self._lock:
            if any(call.over for call in self._calls):
                self._changed.notify_all()

    def _start_afresh(self) -> None:
        """Kill the workers; their items wait for others."""
        for worker in self._workers:
            if worker.item is not None:
                call, index = worker.item
                call.todo.appendleft(index)
        _kill_all(self._workers, self._pid)

    def _start(self) -> None:
        num_items = sum(len(call.requests) - len(call.replies) for call in self._calls)
        while len(self._workers) < min(self.num_workers, num_items):
            self._workers.append(Worker(self.script, self.arguments))

    def _dispatch(self) -> None:
        for slot, worker in enumerate(self._workers):
            if not worker.idle:
                continue
            call = self._next_call()
            if call is None:
                return
            try:
                worker.send(call, call.todo[0], self.timeout_s)
            except OSError:  # it died while idle, which is no fault of this item
                worker.kill()
                self._workers[slot] = Worker(self.script, self.arguments)
            else:
                call.todo.popleft()

    def _next_call(self) -> Call | None:
        """Return the call whose turn it is, if one has an item to do."""
        for _ in range(len(self._calls)):
            self._calls.rotate(-1)
            if self._calls[-1].todo:
                return self._calls[-1]
        return None

    def _hear(self, worker: Worker) -> None:
        try:
            content = worker.receive()
        except (EOFError, OSError):
            self._remove(worker)
            code = worker.process.returncode
            if worker.starting:
                self._failed_starts += 1
                if self._failed_starts < MAX_FAILED_STARTS:
                    return
                self._failed_starts = 0
                fault = f"a worker died starting ({code}), {MAX_FAILED_STARTS} in a row"
                raise RuntimeError(f"{self.script.name}: {fault}") from None
            status, reason = _of_its_end(code)
            if status == "timeout" or not worker.try_again():
                worker.reply(_lost(status, reason))
            return
        if worker.starting:
            if "refused" in content:
                raise ValueError(content["refused"])
            if "failed" in content:
                raise RuntimeError(f"{self.script.name} cannot start:\n{content['failed']}")
            worker.starting = False
            self._failed_starts = 0
            return
        worker.reply(content)

    def _give_up(self, worker: Worker) -> None:
        self._remove(worker)
        if worker.starting:
            raise RuntimeError(f"{self.script.name}: no worker started in {START_SECONDS:g} s")
        worker.reply(_lost("timeout", f"no decision in {self.timeout_s:g} s"))

    def _remove(self, worker: Worker) -> None:
        worker.kill()
        self._workers.remove(worker)


def _lost(status: str, reason: str) -> dict[str, Any]:
    return {"status": status, "canonical": None, "reason": reason}


def _of_its_end(code: int) -> tuple[str, str]:
    """Return status and reason for the exit status of a worker that died at work."""
    if code in (-signal.SIGALRM, -signal.SIGXCPU):  # a library's own alarm, or a limit on CPU time
        return "timeout", f"the worker process was ended by {signal.Signals(-code).name}"
    return "error", f"the worker process died (exit status {code}), as did the one before it"


def _kill_all(workers: list[Worker], pid: int) -> None:
    """Kill and forget ``workers``, unless this process was forked from theirs (``pid``)."""
    if os.getpid() == pid:
        for worker in workers:
            worker.kill()
        workers.clear()
