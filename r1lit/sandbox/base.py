"""The interface of sandboxes: they run untrusted programs and return the outcome.

And the messages between a sandbox of this machine and its client.
"""

from __future__ import annotations

import json
import socket
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

from r1lit.errors import check_above


def to_bytes(text: str) -> bytes:
    """Return any text as UTF-8, lone surrogates (which no UTF-8 text may hold) included."""
    return text.encode("utf-8", "surrogatepass")


class SandboxError(RuntimeError):
    """The sandbox itself failed or is not available here; the program is not at fault."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of one run of a program.

    ``wall_s`` and ``cpu_s`` are seconds, the latter of one process; ``memory_bytes`` is one
    process's address space, and the resident memory of all of them together; ``file_bytes`` is the
    largest file, ``scratch_bytes`` all files together; ``output_bytes`` bounds what is kept of
    stdout and of stderr: a program that writes more is killed.
    """

    wall_s: float = 10.0
    cpu_s: float = 10.0
    memory_bytes: int = 1 << 30
    processes: int = 16
    open_files: int = 64
    file_bytes: int = 16 << 20
    scratch_bytes: int = 64 << 20
    output_bytes: int = 4 << 20

    def __post_init__(self) -> None:
        for field in fields(self):
            check_above(f"limits.{field.name}", getattr(self, field.name), 0, finite=False)


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program of one language: ``files`` by name, the first of which is run or compiled."""

    language: str
    files: Mapping[str, str]

    def __post_init__(self) -> None:
        if not self.files:
            raise ValueError("program.files: there is none; give at least one file to run")
        for name in self.files:
            if not name or "/" in name or "\0" in name or name.startswith("."):
                raise ValueError(
                    f"program.files: {name!r} must be a plain file name, such as 'main.py'"
                )


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The outcome of one run.

    ``exit_code`` is ``None`` when a signal ended the program, ``signal`` is ``None`` when none did.
    ``limit`` names the limit that was hit, in words, or is empty. ``compiled`` is false when the
    program never ran because its compiler refused it; then ``stderr`` is the compiler's.
    """

    stdout: bytes = b""
    stderr: bytes = b""
    exit_code: int | None = None
    signal: int | None = None
    timed_out: bool = False
    limit: str = ""
    compiled: bool = True
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """True where the program ended by itself with exit code 0."""
        return self.exit_code == 0 and not self.timed_out and not self.limit and self.compiled


class Sandbox(ABC):
    """Runs programs. Use as a context manager, or ``close`` it."""

    @property
    @abstractmethod
    def languages(self) -> tuple[str, ...]:
        """The languages it can run."""

    @abstractmethod
    def runs(self, program: Program, stdins: Sequence[bytes], limits: Limits) -> Iterator[Outcome]:
        """Run a program once per element of ``stdins``, each when the next outcome is requested.

        Files that one run writes are not there in the next. A program that does not compile has
        one outcome, with ``compiled`` false.

        Raises:
            ValueError: if the language is not among ``languages``.
            SandboxError: if the sandbox itself fails.
        """

    def run(self, program: Program, stdin: bytes = b"", limits: Limits | None = None) -> Outcome:
        """Run a program once; see ``runs``."""
        return next(self.runs(program, [stdin], limits or Limits()))

    def close(self) -> None:  # noqa: B027 - a remote one has nothing to release
        """Release its processes, if any."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


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
