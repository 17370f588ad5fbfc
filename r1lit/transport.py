"""One HTTP request with a hard time limit, and how long to wait before the next.

Standard library only. Proxies set in the environment are not used.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import random
import socket
import threading
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

MAX_BYTES = 64 * 1024**2
LONGEST_WAIT_S = 60.0
_PASSING = {408, 409, 425, 429}


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a server said; ``wait_s`` are the seconds it asks to be left alone (Retry-After)."""

    status: int
    body: bytes
    wait_s: float | None = None

    @property
    def passing(self) -> bool:
        """Whether the same request may succeed later: 408, 409, 425, 429 and 5xx."""
        return self.status in _PASSING or self.status >= 500

    def said(self, limit: int) -> str:
        """Return the first ``limit`` bytes of the body as text."""
        return self.body[:limit].decode("utf-8", "replace").strip()


def ask(url: str, body: bytes | None, *, timeout_s: float, api_key_env: str) -> Answer:
    """Post ``body``, or get ``url`` without one.

    ``timeout_s`` is wall-clock time, connecting and reading together. The key in the environment
    variable ``api_key_env`` is sent if it is set.

    Raises:
        TimeoutError: if the answer is not there in time.
        OSError, http.client.HTTPException: if there is no connection, or it breaks.
    """
    parts = urlsplit(url)
    assert parts.hostname is not None
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname, parts.port, timeout=timeout_s)
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    if key := os.environ.get(api_key_env):
        headers["Authorization"] = f"Bearer {key}"
    late = threading.Event()

    def hang_up(sock: socket.socket) -> None:
        late.set()
        with contextlib.suppress(OSError):  # closed just now
            sock.shutdown(socket.SHUT_RDWR)

    deadline = time.monotonic() + timeout_s
    connection.connect()
    # the socket's own time-out starts anew with each byte that drips in
    timer = threading.Timer(deadline - time.monotonic(), hang_up, [connection.sock])
    timer.daemon = True
    timer.start()
    path = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
    try:
        connection.request("GET" if body is None else "POST", path, body, headers)
        response = connection.getresponse()
        content = response.read(MAX_BYTES)
    except (OSError, http.client.HTTPException) as error:
        if late.is_set():
            raise TimeoutError(f"no reply in {timeout_s:g} s") from error
        raise
    finally:
        timer.cancel()
        connection.close()
    if late.is_set():
        raise TimeoutError(f"no reply in {timeout_s:g} s")
    wait_s = seconds_in(response.getheader("Retry-After"))
    return Answer(status=response.status, body=content, wait_s=wait_s)


def seconds_in(retry_after: str | None) -> float | None:
    """Read Retry-After in seconds; a date is not read.

    >>> seconds_in("7"), seconds_in("²"), seconds_in("Wed, 21 Oct 2026 07:28:00 GMT")
    (7.0, None, None)
    """
    text = (retry_after or "").strip()
    return float(text) if text.isdecimal() else None


def pause_s(attempt: int, backoff_s: float, wait_s: float | None) -> float:
    """Return how long to wait after try ``attempt`` (from 0) failed.

    What the server asks for, else ``backoff_s`` doubled with every try, times a random factor from
    1/2 to 3/2, so that many threads do not come back at once; never above a minute and a half.
    """
    if wait_s is not None:
        return min(wait_s, LONGEST_WAIT_S)
    return min(backoff_s * 2.0**attempt, LONGEST_WAIT_S) * random.uniform(0.5, 1.5)
