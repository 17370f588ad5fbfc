"""The tests' side of function calls into the untrusted program: a small RPC client.

Only plain data crosses. Arguments are copies: what the program does to them is not seen here.
"""

from __future__ import annotations

import builtins
import json
import socket
from typing import Any

from r1lit.sandbox import plain

MAX_LINE = 16 << 20


class ProgramError(Exception):
    """The program has exited or broken the protocol; all later calls fail, too."""


class RemoteValue(plain.Handle):
    """A value of the program's that stays with it; its public methods can be called."""

    __slots__ = ("_program",)

    def __init__(self, program: RemoteProgram, number: int) -> None:
        super().__init__(number)
        self._program = program

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return RemoteMethod(self._program, self.number, name)


class RemoteMethod(plain.Handle):
    """A method of such a value: it can be called, and not looked at, for it may be none."""

    __slots__ = ("_name", "_program")

    def __init__(self, program: RemoteProgram, number: int, name: str) -> None:
        super().__init__(number)
        self._program, self._name = program, name

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Call it there."""
        call = plain.encode((arguments, keywords))
        return self._program.request([self.number, self._name], call)


class RemoteProgram:
    """The untrusted program behind the socket ``channel``: calls its functions, fetches its values.

    ``failure`` says why the program failed for good, or is empty. Tests that catch every exception
    do not hide it, so look at it before believing them.
    """

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._lines = channel.makefile("rb")
        self.failure = ""

    def load(self) -> None:
        """Wait until the program is loaded.

        Raises:
            ProgramError: if it raises while it is.
        """
        kind, *rest = self._receive_message()
        if kind == "failed" and len(rest) == 2:
            self._fail(f"{rest[0]}: {rest[1]}" if rest[1] else rest[0])
        if kind != "loaded":
            self._fail("the program broke the protocol of calls")

    def function(self, name: str) -> Any:
        """Return a function that calls the program's function ``name``."""

        def call(*arguments: Any, **keywords: Any) -> Any:
            return self.request(name, plain.encode((arguments, keywords)))

        call.__name__ = call.__qualname__ = name
        return call

    def value(self, name: str) -> Any:
        """Return the program's global ``name``; a ``Handle`` if it is not plain data.

        Raises:
            NameError: if it has none.
        """
        return self.request(name, None)

    def request(self, name: str | list[Any], call: str | None) -> Any:
        """Return what a call gives, or a global where ``call`` is ``None``; see ``rpc_server``."""
        if self.failure:
            raise ProgramError(self.failure)
        try:
            self._channel.sendall(json.dumps([name, call]).encode() + b"\n")
        except OSError:
            self._fail("the program has ended")
        kind, *rest = self._receive_message()
        if kind == "value" and len(rest) == 1:
            try:
                return plain.decode(rest[0], lambda number: RemoteValue(self, number))
            except plain.NotPlainData as error:
                self._fail(str(error))
        if kind == "raised" and len(rest) == 3:
            raise _exception(*rest)
        if kind == "refused" and len(rest) == 1:
            self._fail(f"{name} gave {rest[0]}"[:300])
        raise self._fail("the program broke the protocol of calls")

    def _receive_message(self) -> list[str]:
        try:
            line = self._lines.readline(MAX_LINE)
        except OSError:
            line = b""
        if not line.endswith(b"\n"):
            self._fail("returned more than can be read" if line else "the program has ended")
        try:
            parts = json.loads(line)
        except (ValueError, RecursionError):
            parts = None
        if not isinstance(parts, list) or not parts or not all(type(p) is str for p in parts):
            self._fail("the program broke the protocol of calls")
        return parts

    def _fail(self, reason: str) -> ProgramError:
        self.failure = self.failure or reason
        raise ProgramError(self.failure)


def _exception(kind: str, name: str, text: str) -> Exception:
    """Return an exception of the built-in class ``kind``, or one that only says what it was."""
    text = text if name == kind else f"{name}: {text}"
    found = getattr(builtins, kind, None)
    if isinstance(found, type) and issubclass(found, Exception):
        try:
            return found(text[:300])
        except TypeError:  # a Unicode error takes more arguments
            pass
    return RuntimeError(f"{kind}: {text}"[:300])
