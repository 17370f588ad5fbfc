"""Messages over a stream socket: a JSON header and raw bytes behind it."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping
from typing import Any

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
