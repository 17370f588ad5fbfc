"""A cache of what models replied, or of what was read from it."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

_WAIT_S = 60.0
_TABLE = "CREATE TABLE IF NOT EXISTS reply (key TEXT PRIMARY KEY, value TEXT)"


class ReplyCache:
    """JSON values by key, in an SQLite file, or in memory without one.

    Every operation opens the file again, so threads, forked processes and other programs may share
    it; SQLite's locks keep them apart (not on network disks, which do not keep locks). What ``put``
    has returned from survives a kill.

    Raises:
        ValueError: if ``path`` is a file of another kind.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._memory: dict[str, Any] = {}
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with closing(self._connect(path)) as connection, connection:
                    connection.execute(_TABLE)
            except sqlite3.DatabaseError as error:
                raise ValueError(f"cache: {path} is not a cache of replies: {error}") from error

    def get(self, key: str) -> Any:
        """Return what was kept under a key, or None."""
        if self.path is None:
            return self._memory.get(key)
        with closing(self._connect(self.path)) as connection:
            row = connection.execute("SELECT value FROM reply WHERE key = ?", (key,)).fetchone()
        return None if row is None else json.loads(row[0])

    def put(self, key: str, value: Any) -> None:
        """Keep a JSON value. The first one stays when two processes put one each.

        Raises:
            ValueError: if the file cannot be written.
        """
        if self.path is None:
            self._memory.setdefault(key, value)
            return
        try:
            with closing(self._connect(self.path)) as connection, connection:
                statement = "INSERT OR IGNORE INTO reply VALUES (?, ?)"
                connection.execute(statement, (key, json.dumps(value)))
        except sqlite3.OperationalError as error:  # such as a full disk
            raise ValueError(f"cache: {self.path} cannot be written: {error}") from error

    @staticmethod
    def _connect(path: Path) -> sqlite3.Connection:
        return sqlite3.connect(path, timeout=_WAIT_S)


def key_of(*parts: str) -> str:
    """Return the key of a reply: a digest of everything it depends on."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()
