"""One worker process of a pool, and the call whose items it decides."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

START_SECONDS = 120.0


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What became of one item: the worker's own reply, or a ``timeout`` or ``error``."""

    content: Mapping[str, Any]
    seconds: float


class Call:
    """The requests of one caller, and the replies so far by their index."""

    def __init__(self, requests: Sequence[Mapping[str, Any]]) -> None:
        self.requests = requests
        self.todo = deque(range(len(requests)))
        self.replies: dict[int, Reply] = {}
        self.tried_again: set[int] = set()

    @property
    def over(self) -> bool:
        """Whether every item has its reply."""
        return len(self.replies) == len(self.requests)


class Worker:
    """One process. It is starting, then by turns idle and busy with an item of a call."""

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
        self.item: tuple[Call, int] | None = None
        self.since = time.monotonic()
        self.deadline = self.since + START_SECONDS

    @property
    def idle(self) -> bool:
        """Whether it can be sent an item."""
        return not self.starting and self.item is None

    def send(self, call: Call, index: int, timeout_s: float) -> None:
        """Send an item of ``call``."""
        # The worker's own alarm is for the day the parent is gone, so it is later than ours.
        message = json.dumps({**call.requests[index], "patience": 2 * timeout_s + 1})
        self.connection.send_bytes(message.encode())
        self.item = call, index
        self.since = time.monotonic()
        self.deadline = self.since + timeout_s

    def receive(self) -> dict[str, Any]:
        """Return what the process sent."""
        content: dict[str, Any] = json.loads(self.connection.recv_bytes())
        return content

    def reply(self, content: Mapping[str, Any]) -> None:
        """Give ``content`` to the call whose item this is, and be idle."""
        assert self.item is not None
        call, index = self.item
        call.replies[index] = Reply(content=content, seconds=time.monotonic() - self.since)
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
