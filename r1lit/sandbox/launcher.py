"""The launcher: a small process that forks sandboxes, each into namespaces of its own.

It is started with a clean environment and the standard library only. It never reads a program or a
test: those go straight from the client to the sandbox that it forked, so that no later fork can
find them in memory it inherited. Over its socket come requests with descriptors,

    {"protected", "with_tools", "packages", "scratch_bytes"}  + [client, done] or with [channel]

and nothing goes back. ``done`` closes when every process of that sandbox is gone. When the socket
closes, as it does when its client ends, the launcher and all sandboxes end. A parent-death signal
would not do: it fires at the end of the thread that started the launcher.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Mapping
from typing import Any

from r1lit.sandbox import init
from r1lit.sandbox.base import SandboxError
from r1lit.sandbox.container import send_frame
from r1lit.sandbox.kernel import CLONE_NEWUSER, NAMESPACES, fork_into

FIRST_USER = 1_000_000_000
USERS = 500
"""User ids from ``FIRST_USER`` on are unused. Each launcher has ``USERS`` of them and gives its
sandboxes one each in turn, so that limits per user do not count other sandboxes."""

# what most programs import: a fork has it for nothing
for _name in (
    "bisect", "collections", "copy", "dataclasses", "datetime", "decimal", "fractions",
    "functools", "hashlib", "heapq", "itertools", "json", "math", "operator", "random", "re",
    "statistics", "string", "threading", "traceback", "typing",
):  # fmt: skip
    __import__(_name)


def spare_user() -> int | None:
    """Return the first of ``USERS`` user ids to run programs as.

    ``None`` where this process may not change its own.
    """
    if os.geteuid() != 0:
        return None
    user = FIRST_USER + USERS * (os.getpid() % (1 << 22))
    with open("/proc/self/uid_map") as file:
        ranges = [tuple(map(int, line.split())) for line in file]
    for start, _, length in ranges:
        if start <= user and user + USERS <= start + length:
            return user
    return None


class Launcher:
    """Serves one parent over ``control``."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._user = spare_user()
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        self._sandboxes: dict[int, tuple[int, int]] = {}
        self._num_launched = 0

    def serve(self) -> None:
        """Fork sandboxes until the parent closes the socket."""
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor != self._control.fileno():
                    self._reap(descriptor)
                elif not self._launch():
                    return

    def _launch(self) -> bool:
        text, descriptors, _, _ = socket.recv_fds(self._control, 1 << 16, 3)
        if not text:
            return False
        client, done, *channel = descriptors
        settings = json.loads(text)
        namespaces = NAMESPACES | (CLONE_NEWUSER if self._user is None else 0)
        if not settings["protected"]:
            namespaces = 0
        user, group = os.geteuid(), os.getegid()
        self._num_launched += 1
        try:
            process = fork_into(namespaces)
        except OSError as error:
            with socket.socket(fileno=client) as connection:
                send_frame(connection, {"failed": f"no namespaces: {error}"})
            for descriptor in (done, *channel):
                os.close(descriptor)
            return True
        if process == 0:
            os.close(done)
            for other, (_, other_done) in self._sandboxes.items():
                os.close(other)
                os.close(other_done)
            self._control.close()
            self._become_init(client, channel, user, group, settings)
        for descriptor in (client, *channel):
            os.close(descriptor)
        ended = os.pidfd_open(process)
        self._sandboxes[ended] = (process, done)
        self._poll.register(ended, select.POLLIN)
        return True

    def _become_init(
        self,
        client: int,
        channel: list[int],
        user: int,
        group: int,
        settings: Mapping[str, Any],
    ) -> None:
        connection = socket.socket(fileno=client)
        try:
            if self._user is None and settings["protected"]:
                init.map_user(user, group)
            own = None if self._user is None else self._user + self._num_launched % USERS
            init.serve(connection, channel[0] if channel else None, own, settings)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the client has gone
        except SandboxError as error:
            send_frame(connection, {"failed": str(error)})
        except BaseException:
            send_frame(connection, {"failed": traceback.format_exc(limit=-3)})
        finally:
            os._exit(0)

    def _reap(self, ended: int) -> None:
        process, done = self._sandboxes.pop(ended)
        os.waitpid(process, 0)
        self._poll.unregister(ended)
        os.close(ended)
        os.close(done)


def main(control: int) -> None:
    """Serve the parent over the socket ``control``."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then closes
    if sys.stdin is not None:
        sys.stdin.close()
    Launcher(socket.socket(fileno=control)).serve()
