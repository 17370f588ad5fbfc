"""Killable worker processes with a time limit an item."""

from __future__ import annotations

import json
import os
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

START_SECONDS = 120.0


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What became of one item: the worker's own reply, or a ``timeout`` or ``error``."""

    content: Mapping[str, Any]
    seconds: float


class _Worker:
    """One process. It is starting, then by turns idle and busy with the item ``index``."""

    def __init__(self, script: Path) -> None:
        self.connection, theirs = Pipe()
        with theirs:
            # -P: the script's folder must not shadow installed modules. A session of its own:
            # Ctrl-C is for the parent, which then closes the pool.
            self.process = subprocess.Popen(
                [sys.executable, "-P", str(script), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        self.starting = True
        self.index: int | None = None
        self.since = time.monotonic()
        self.deadline = self.since + START_SECONDS

    @property
    def idle(self) -> bool:
        return not self.starting and self.index is None

    def send(self, index: int, request: Mapping[str, Any], timeout_s: float) -> None:
        # The worker's own alarm is for the day the parent is gone, so it is later than ours.
        message = json.dumps({**request, "patience": 2 * timeout_s + 1})
        self.connection.send_bytes(message.encode())
        self.index = index
        self.since = time.monotonic()
        self.deadline = self.since + timeout_s

    def receive(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self.connection.recv_bytes())
        return content

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.connection.close()


class WorkerPool:
    """Runs requests through at most ``num_workers`` processes that execute ``script``.

    An item that hangs, crashes or eats its process's memory costs only itself: its worker is killed
    and the next item gets a fresh one. Processes start at the first request. Threads may share a
    pool; their calls take turns. A pickled, copied or forked pool has no processes and starts its
    own. ``pids`` are the processes alive now.
    """

    def __init__(self, script: Path, num_workers: int, timeout_s: float) -> None:
        self.script = script
        self.num_workers = num_workers
        self.timeout_s = timeout_s
        self._become_empty()

    def _become_empty(self) -> None:
        self._lock = threading.Lock()
        self._workers: list[_Worker] = []
        self._pid = os.getpid()
        self._finalizer = weakref.finalize(self, _kill_all, self._workers, self._pid)

    def __getstate__(self) -> dict[str, Any]:
        return {k: getattr(self, k) for k in ("script", "num_workers", "timeout_s")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._become_empty()

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        return [worker.process.pid for worker in self._workers]

    def run(self, requests: Sequence[Mapping[str, Any]]) -> list[Reply]:
        """Return one reply a request, in order.

        Raises:
            RuntimeError: if a worker cannot start.
        """
        if self._pid != os.getpid():  # forked: the processes belong to the parent
            self._become_empty()
        with self._lock:
            try:
                return self._run(requests)
            except BaseException:  # also Ctrl-C: replies may be under way, so start afresh
                _kill_all(self._workers, self._pid)
                raise

    def close(self) -> None:
        """Kill the workers; a later ``run`` starts new ones."""
        if self._pid != os.getpid():
            return
        with self._lock:
            _kill_all(self._workers, self._pid)

    def _run(self, requests: Sequence[Mapping[str, Any]]) -> list[Reply]:
        replies: dict[int, Reply] = {}
        todo = deque(range(len(requests)))
        while len(replies) < len(requests):
            self._start(len(requests) - len(replies))
            self._dispatch(todo, requests)
            waiting = [worker for worker in self._workers if not worker.idle]
            patience = max(0.0, min(w.deadline for w in waiting) - time.monotonic())
            ready = wait([worker.connection for worker in waiting], patience)
            for worker in waiting:
                if worker.connection in ready:
                    self._hear(worker, replies)
                elif time.monotonic() >= worker.deadline:
                    self._give_up(worker, replies)
        return [replies[index] for index in range(len(requests))]

    def _start(self, num_items: int) -> None:
        while len(self._workers) < min(self.num_workers, num_items):
            self._workers.append(_Worker(self.script))

    def _dispatch(self, todo: deque[int], requests: Sequence[Mapping[str, Any]]) -> None:
        for slot, worker in enumerate(self._workers):
            if not todo:
                return
            if not worker.idle:
                continue
            try:
                worker.send(todo[0], requests[todo[0]], self.timeout_s)
            except OSError:  # it died while idle, which is no fault of this item
                worker.kill()
                self._workers[slot] = _Worker(self.script)
            else:
                todo.popleft()

    def _hear(self, worker: _Worker, replies: dict[int, Reply]) -> None:
        try:
            content = worker.receive()
        except (EOFError, OSError):
            self._remove(worker)
            code = worker.process.returncode
            if worker.starting:
                raise RuntimeError(f"{self.script.name}: a worker died starting ({code})") from None
            self._keep(worker, replies, "error", f"the worker process died (exit status {code})")
            return
        if worker.starting:
            if "failed" in content:
                raise RuntimeError(f"{self.script.name} cannot start:\n{content['failed']}")
            worker.starting = False
            return
        assert worker.index is not None
        replies[worker.index] = Reply(content=content, seconds=time.monotonic() - worker.since)
        worker.index = None

    def _give_up(self, worker: _Worker, replies: dict[int, Reply]) -> None:
        self._remove(worker)
        if worker.starting:
            raise RuntimeError(f"{self.script.name}: no worker started in {START_SECONDS:g} s")
        self._keep(worker, replies, "timeout", f"no decision in {self.timeout_s:g} s")

    def _keep(self, worker: _Worker, replies: dict[int, Reply], status: str, reason: str) -> None:
        assert worker.index is not None
        replies[worker.index] = Reply(
            content={"status": status, "canonical": None, "reason": reason},
            seconds=time.monotonic() - worker.since,
        )

    def _remove(self, worker: _Worker) -> None:
        worker.kill()
        self._workers.remove(worker)


def _kill_all(workers: list[_Worker], pid: int) -> None:
    """Kill and forget ``workers``, unless this process was forked from theirs (``pid``)."""
    if os.getpid() == pid:
        for worker in workers:
            worker.kill()
        workers.clear()
