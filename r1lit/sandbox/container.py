"""The client of one running sandbox, and the messages to its server, which is ``init``."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from r1lit.sandbox.base import Limits, Outcome, SandboxError, to_bytes

_LENGTHS = struct.Struct("!II")


def send_frame(connection: socket.socket, header: Mapping[str, Any], body: bytes = b"") -> None:
    """Send one message."""
    text = json.dumps(header).encode()
    connection.sendall(_LENGTHS.pack(len(text), len(body)) + text + body)


def receive_frame(connection: socket.socket) -> tuple[dict[str, Any], bytes]:
    """Wait for one message: its header and body.

    Raises:
        EOFError: if the other side has closed.
    """
    header, body = _LENGTHS.unpack(_receive(connection, _LENGTHS.size))
    return json.loads(_receive(connection, header)), _receive(connection, body)


def _receive(connection: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = connection.recv(min(size, 1 << 20))
        if not part:
            raise EOFError("the other side has closed")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


START_SECONDS = 20.0


class Container:
    """One running sandbox, with the files and runs of one program. Close it after use."""

    def __init__(self, client: socket.socket, done: int) -> None:
        self._client = client
        self._done = done

    def put(self, name: str, content: str | bytes) -> None:
        """Write ``/program/name``, before the first run."""
        body = to_bytes(content) if isinstance(content, str) else content
        self._send({"op": "put", "name": name}, body)

    def start(self, request: Mapping[str, Any], limits: Limits, stdin: bytes = b"") -> None:
        """Start a run; see ``init`` for what a request holds."""
        self._send({"op": "run", **request, "limits": asdict(limits)}, stdin)

    def outcome(self, wait_s: float) -> Outcome:
        """Wait for the end of a run that ``start`` started.

        Raises:
            SandboxError: if the sandbox fails or ends, or gives none within ``wait_s``.
        """
        report, body = self._receive_message(wait_s)
        split = report.pop("split")
        return Outcome(stdout=body[:split], stderr=body[split:], **report)

    def ready(self) -> list[str]:
        """Wait until the sandbox is set up; return its protections, one line each.

        Raises:
            SandboxError: if it cannot be set up, with the reason.
        """
        try:
            header, _ = self._receive_message(START_SECONDS)
        except SandboxError as error:
            raise SandboxError(
                "this machine cannot isolate programs; allow user"
                " namespaces (sysctl kernel.unprivileged_userns_clone=1, or AppArmor's"
                " kernel.apparmor_restrict_unprivileged_userns=0), use a remote sandbox, or pass"
                f" allow_unprotected=True: {error}"
            ) from error
        found: list[str] = header["protections"]
        return found

    def stop(self) -> None:
        """Kill what runs, without waiting for its end."""
        with contextlib.suppress(OSError):  # shut down: a forked copy may hold it open
            self._client.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Kill what runs and wait until every process is gone."""
        if self._done >= 0:
            self.stop()
            self._client.close()
            os.read(self._done, 1)
            os.close(self._done)
            self._done = -1

    def _send(self, header: Mapping[str, Any], body: bytes) -> None:
        try:
            send_frame(self._client, header, body)
        except OSError as error:
            raise SandboxError(f"the sandbox has ended: {error}") from error

    def _receive_message(self, wait_s: float) -> tuple[dict[str, Any], bytes]:
        self._client.settimeout(wait_s)
        try:
            header, body = receive_frame(self._client)
        except (EOFError, OSError) as error:
            raise SandboxError(f"the sandbox has ended: {error}") from error
        if "failed" in header:
            raise SandboxError(header["failed"])
        return header, body

    def __enter__(self) -> Container:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
