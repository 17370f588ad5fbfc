"""A cache of a model's replies on disk."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from r1lit.files import JSONLFile, parse_line


@dataclass(frozen=True, kw_only=True)
class Reply:
    """A model's reply; ``finished`` is false if it was cut at the token limit."""

    text: str
    num_tokens: int
    finished: bool


class Replies:
    """Replies by key and attempt, in a JSONL file; memory holds only the position of each line.

    ``put`` writes immediately, so an interrupted run loses no reply.
    """

    def __init__(self, path: Path) -> None:
        self._lines = JSONLFile(path, "cache")
        self._lines.cut_torn_line()
        self._starts: dict[tuple[str, int], int] = {}
        start = 0
        if path.is_file():
            with path.open("rb") as file:
                for number, line in enumerate(file, start=1):
                    record = parse_line(line, number, f"cache: {path}")
                    if not {"key", "attempt", "text", "num_tokens", "finished"} <= set(record):
                        raise ValueError(f"cache: {path}, line {number}, is no reply of a refiner")
                    self._starts.setdefault((record["key"], record["attempt"]), start)
                    start += len(line)

    def get(self, key: str, attempt: int) -> Reply | None:
        """Return the reply to one attempt, or None."""
        start = self._starts.get((key, attempt))
        if start is None:
            return None
        with self._lines.path.open("rb") as file:
            file.seek(start)
            record = parse_line(file.readline(), 0, f"cache: {self._lines.path}")
        return Reply(
            text=record["text"], num_tokens=record["num_tokens"], finished=record["finished"]
        )

    def put(self, key: str, attempt: int, reply: Reply) -> None:
        """Write a reply."""
        path = self._lines.path
        start = path.stat().st_size if path.is_file() else 0
        self._lines.append([{"key": key, "attempt": attempt, **asdict(reply)}])
        self._starts[key, attempt] = start
