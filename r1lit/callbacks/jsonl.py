"""Files of one JSON record a line, which survive a kill and can be cut back on resume."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from r1lit.callbacks.atomic import replace_file

Record = dict[str, Any]


def append(path: Path, records: Iterable[Record]) -> None:
    """Append one line a record, flushed to the operating system before returning."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))


def read(path: Path) -> list[Record]:
    """Return the records, or none without a file; a last line that a kill tore is left out."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines[:-1] if line]


def keep_only(path: Path, keep: Callable[[Record], bool]) -> list[Record]:
    """Drop the records that ``keep`` refuses, and a torn last line; return those kept."""
    records = [record for record in read(path) if keep(record)]
    if path.exists():
        lines = (json.dumps(record, ensure_ascii=False) + "\n" for record in records)
        replace_file(path, "".join(lines).encode())
    return records
