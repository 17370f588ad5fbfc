"""Files that survive a kill at any moment: replaced as a whole, or one JSON record per line.

Files and folders are replaced so that the old or the new one is there. Several processes may append
records to one file. A kill may leave its last line incomplete ("torn"); reading leaves it out.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from r1lit.errors import check_posix

Record = dict[str, Any]


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add ``path`` to an OSError from within, since the error of a full disk names no file."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


def absent(path: str | Path, kind: str = "file") -> str:
    """Return the words that no such ``kind`` is there, and where a relative path was looked for.

    >>> absent("/data/sums.jsonl")
    "there is no file '/data/sums.jsonl'"
    """
    return f"there is no {kind} {str(path)!r}{looked_in(path)}"


def looked_in(path: str | Path) -> str:
    """Return where a relative path was looked for, as words to append; nothing of another."""
    return "" if Path(path).expanduser().is_absolute() else f" in {Path.cwd()}"


def replace_file(path: Path, content: bytes) -> None:
    """Write a file beside ``path`` and rename it to ``path``; a failed write leaves no file.

    Raises:
        OSError: naming ``path``.
    """
    temporary = beside(path)
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_bytes(content)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        os.replace(temporary, path)


def replace_json(path: Path, content: Any) -> None:
    """Write a JSON file as ``replace_file`` does.

    Raises:
        OSError: naming ``path``.
    """
    written = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    replace_file(path, written.encode("utf-8", "backslashreplace"))  # of lone surrogates


def replace_path(new: Path, path: Path) -> None:
    """Rename a finished file or folder ``new`` onto ``path``; both lie on one file system.

    A folder cannot be renamed onto a filled one: the old one steps aside to ``.<name>.previous``
    for a moment and is then deleted. A kill within that moment leaves it there, whole, for
    ``put_back``.
    """
    if not path.is_dir():
        os.replace(new, path)
        return
    previous = path.with_name(f".{path.name}.previous")
    shutil.rmtree(previous, ignore_errors=True)
    os.replace(path, previous)
    os.replace(new, path)
    shutil.rmtree(previous)


def put_back(path: Path) -> None:
    """Give ``path`` back the folder that a kill within ``replace_path`` has left aside."""
    if not path.exists():
        with suppress(FileNotFoundError):  # there is none, or another rank was faster
            os.replace(path.with_name(f".{path.name}.previous"), path)


def beside(path: Path) -> Path:
    """Return this process's temporary name in the folder of ``path``."""
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


def remove(path: Path) -> None:
    """Remove the file or folder that an earlier kill may have left at ``path``."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def append_records(path: Path, records: Iterable[Record]) -> None:
    """Append one line a record, handed to the operating system before returning.

    All are one write at the end of the file, so those of several processes do not mix.
    """
    content = _as_lines(records)
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            while content:
                content = content[os.write(file, content) :]
        finally:
            os.close(file)


def write_records(path: Path, records: Iterable[Record]) -> None:
    """Write one line a record, all or none; a file that holds just these is left as it is."""
    content = _as_lines(records)
    if not path.exists() or path.read_bytes() != content:
        replace_file(path, content)


def read_records(path: Path) -> list[Record]:
    """Return the records, or none without a file; a last line that a kill tore is left out.

    Raises:
        ValueError: naming the line that is no record.
    """
    return list(JSONLFile(path, "path").read())


def read_existing(path: Path, key: str) -> list[Record]:
    """Return the records of a file that an earlier step has made.

    Raises:
        ValueError: naming ``key``, if it is not there; or the line that is no record.
    """
    if not path.is_file():
        raise ValueError(f"{key}: {absent(path)}")
    return list(JSONLFile(path, key).read())


def keep_records(path: Path, keep: Callable[[Record], bool]) -> list[Record]:
    """Drop the records that ``keep`` refuses, and a torn last line; return those kept."""
    records = [record for record in read_records(path) if keep(record)]
    if path.exists():
        write_records(path, records)
    return records


class JSONLFile:
    """Appends records to one file and reads them; an error names the file by ``key``."""

    def __init__(self, path: Path, key: str) -> None:
        self.path = path
        self.key = key

    def append(self, records: Iterable[Record]) -> None:
        """Append one line a record, as ``append_records`` does.

        Raises:
            ValueError: if it cannot be written: no such folder, no right to it, a full disk.
        """
        try:
            append_records(self.path, records)
        except OSError as error:
            raise ValueError(
                f"{self.key}: {self.path} cannot be written ({error.strerror}); what is in it is"
                " kept, and the same command continues from there"
            ) from error

    def cut_torn_line(self) -> None:
        """Drop a last line without its end, which a kill or a full disk left."""
        if not self.path.is_file():
            return
        with self.path.open("rb+") as file:
            size = end = file.seek(0, os.SEEK_END)
            while end:
                start = max(0, end - (1 << 16))
                file.seek(start)
                newline = file.read(end - start).rfind(b"\n")
                if newline >= 0:
                    end = start + newline + 1
                    break
                end = start
            if end < size:
                file.truncate(end)

    def read(self) -> Iterator[Record]:
        """Yield the records in their order; none where there is no file.

        Raises:
            ValueError: naming the line that is no record.
        """
        if not self.path.is_file():
            return
        with self.path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    return
                yield parse_line(line, number, f"{self.key}: {self.path}")


def parse_line(line: bytes, number: int, where: str) -> Record:
    """Return the JSON object that a line holds.

    Raises:
        ValueError: naming ``where`` and the line's number if it holds none.
    """
    try:
        return parse_object(line)
    except ValueError as error:
        raise ValueError(f"{where}, line {number}: {error}") from error


def parse_object(line: bytes) -> Record:
    """Return the JSON object that a line holds, or raise a ValueError that says what it holds."""
    try:
        record = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON in UTF-8 ({error})") from error
    if not isinstance(record, dict):
        raise ValueError(f"a JSON object is needed, not {type(record).__name__}")
    return record


def _as_lines(records: Iterable[Record]) -> bytes:
    lines = (json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    return "".join(lines).encode("utf-8", "backslashreplace")  # a response may hold lone surrogates


def defined(value: Any) -> Any:
    """Return ``value`` with None for every number that is not finite, which JSON cannot hold."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: defined(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [defined(v) for v in value]
    return value


@contextmanager
def held(lock: Path, *, wait_s: float = 0.0) -> Iterator[IO[str] | None]:
    """Hold the lock on a file; yields None if another process still holds it after ``wait_s``.

    A killed process lets go. One that inherits the yielded file holds the lock too while it lives.

    Raises:
        ValueError: on Windows, which has no such locks.
    """
    check_posix("the lock of a folder")
    import fcntl

    lock.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + wait_s
    with lock.open("a") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    yield None
                    return
                time.sleep(0.1)
        yield file
