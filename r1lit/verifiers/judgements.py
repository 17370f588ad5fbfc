"""The cache of a generative judge's judgements, and the log of its requests."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

from r1lit.files import append_records
from r1lit.problems import Status
from r1lit.verifiers.endpoint import Reply

_WAIT_S = 60.0
_TABLE = "CREATE TABLE IF NOT EXISTS judgement (key TEXT PRIMARY KEY, status TEXT, reason TEXT)"


class Judgements:
    """A cache of judgements in an SQLite file, in memory without one.

    Every operation opens the file anew, so threads, forked processes and other programs may share
    it; SQLite's locks keep them apart (not on network disks, which do not keep locks).

    Raises:
        ValueError: if ``path`` is a file of another kind.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._memory: dict[str, tuple[Status, str]] = {}
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with closing(self._connect(path)) as connection, connection:
                    connection.execute(_TABLE)
            except sqlite3.DatabaseError as error:
                raise ValueError(f"cache: {path} is not a file of judgements: {error}") from error

    def get(self, key: str) -> tuple[Status, str] | None:
        """Return status and reason of an earlier judgement, or ``None``."""
        known = self._memory.get(key)
        if known is None and self.path is not None:
            with closing(self._connect(self.path)) as connection:
                query = "SELECT status, reason FROM judgement WHERE key = ?"
                known = connection.execute(query, (key,)).fetchone()
            if known is not None:
                self._memory[key] = known
        return known

    def put(self, key: str, status: Status, reason: str) -> None:
        """Keep a judgement. The first one stays when two processes judged the same."""
        self._memory[key] = (status, reason)
        if self.path is not None:
            with closing(self._connect(self.path)) as connection, connection:
                statement = "INSERT OR IGNORE INTO judgement VALUES (?, ?, ?)"
                connection.execute(statement, (key, status, reason))

    @staticmethod
    def _connect(path: Path) -> sqlite3.Connection:
        return sqlite3.connect(path, timeout=_WAIT_S)


class CostLog:
    """One line of JSON per request to a judge, and their sums.

    A line has the ``time`` (Unix, seconds) the request began, ``judge``, ``attempt``, ``status``,
    ``seconds``, the endpoint's ``prompt_tokens`` and ``completion_tokens`` (null where it counts
    none), and ``error``, the reason of a request without a reply (else null).
    ``totals`` has the sums of this process: requests, seconds, tokens of either kind, and
    requests by status. Without ``path`` there are only the sums.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.totals: dict[str, float] = {}
        self._lock = threading.Lock()
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)

    def __getstate__(self) -> dict[str, object]:
        return {"path": self.path, "totals": self.totals}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()

    def add(
        self,
        judge: str,
        attempt: int,
        status: Status,
        seconds: float,
        reply: Reply,
        error: str | None = None,
    ) -> None:
        """Log one request that took ``seconds`` until now."""
        numbers = {
            "seconds": round(seconds, 4),
            "prompt_tokens": reply.prompt_tokens,
            "completion_tokens": reply.completion_tokens,
        }
        with self._lock:
            for key, value in {"requests": 1, status: 1, **numbers}.items():
                self.totals[key] = self.totals.get(key, 0) + (value or 0)
        if self.path is not None:
            began = round(time.time() - seconds, 3)
            line = {"time": began, "judge": judge, "attempt": attempt, "status": status, **numbers}
            append_records(self.path, [{**line, "error": error}])
