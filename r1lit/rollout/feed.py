"""Requests that join an engine while it generates others."""

from __future__ import annotations

import threading
from collections.abc import Callable

from r1lit.rollout.request import Request


class RequestFeed:
    """Requests of one sample each that join a stream under way, added from any thread.

    Args:
        start: the index of the first one's completion, behind those of the stream's own requests.
    """

    def __init__(self, start: int) -> None:
        self._next, self._new = start, list[Request]()
        self._lock = threading.Lock()
        self._ended = False
        self._error: BaseException | None = None
        self.on_change: Callable[[], object] = lambda: None

    def add(self, request: Request) -> int:
        """Have a request generated; return the index of its completion."""
        with self._lock:
            self._new.append(request)
            self._next += 1
            index = self._next - 1
        self.on_change()
        return index

    def end(self, error: BaseException | None = None) -> None:
        """Say that no more will come; with an error, the stream raises it."""
        with self._lock:
            self._ended = True
            self._error = self._error or error
        self.on_change()

    @property
    def over(self) -> bool:
        """True where all requests have been taken, no more will come, and no error is left."""
        with self._lock:
            return self._ended and not self._new and self._error is None

    def take(self) -> list[Request]:
        """Return the requests that have come since the last time, in the order of their indices.

        Raises:
            BaseException: that of ``end``.
        """
        with self._lock:
            if self._error is not None:
                raise self._error
            taken, self._new = self._new, []
        return taken
