"""Function calls between a data set's tests and an untrusted program, each in its own sandbox.

Both ends of the channel are a ``Peer``: one JSON list a line. An end asks (``call`` a function,
``get`` a value, ``next`` of an iterator, ``shape`` of a dataclass) and answers the other end's
questions until its own is answered, so that a test can hand a function to the program. Only plain
data crosses; what is not plain stays on its side, known to the other by a number.

The program can change everything in its own process. So the tests' end (``RemoteProgram``) reads
its replies as plain data, never compares an object of the program's by the program's own rules, and
turns exceptions into errors without a meaning for control flow: a program that raises
``StopIteration`` must not end the loop of a test.
"""

from __future__ import annotations

import builtins
import json
import os
import socket
import sys
import threading
import types
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from r1lit.sandbox import plain

NAME = "solution"
MAX_LINE = 16 << 20
LOOKED = "the tests looked at a value that is not plain data"
QUESTIONS = ("call", "get", "next", "shape")
CONTROL_FLOW = (StopIteration, StopAsyncIteration)
"""Exceptions that end a loop, a generator or ``next(…, default)`` of whoever calls."""


class ProgramError(Exception):
    """The program has exited or broken the protocol; all later calls fail, too."""


class Peer(ABC):
    """One end of the channel: it asks the other end, and answers it while it waits."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._lines = channel.makefile("rb")
        self._kept: list[Any] = []
        self._lock = threading.RLock()

    def _keep(self, value: Any) -> int:
        self._kept.append(value)
        return len(self._kept) - 1

    def _send(self, message: Sequence[Any]) -> None:
        self._channel.sendall(json.dumps(message).encode() + b"\n")

    def _ask(self, *question: Any) -> tuple[str, list[Any]]:
        """Return the kind and the parts of the other end's answer."""
        with self._lock:
            self._send(question)
            while True:
                kind, *rest = self._receive()
                if kind not in QUESTIONS:
                    return kind, rest
                self._send(self._answer(kind, rest))

    @abstractmethod
    def _receive(self) -> list[Any]:
        """Return the next message."""

    @abstractmethod
    def _answer(self, kind: str, parts: Sequence[Any]) -> Sequence[str]:
        """Return the answer to a question of the other end's."""

    def _next(self, iterator: Iterator[Any]) -> Sequence[str]:
        try:
            item = next(iterator)
        except StopIteration:
            return ["end"]
        return ["value", plain.encode(item, self._keep)]

    def _items(self, number: int) -> Iterator[Any]:
        """Iterate over an iterator of the other end's."""
        while True:
            kind, rest = self._ask("next", number)
            if kind == "end":
                return
            yield self._result(kind, rest)

    @abstractmethod
    def _result(self, kind: str, rest: Sequence[Any]) -> Any:
        """Return the value that an answer holds, or raise what it says."""


def _raised(error: BaseException) -> list[str]:
    """Return the answer that a call raised ``error``."""
    kinds = [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins"]
    return ["raised", kinds[0], type(error).__name__, _text(error)]


def _exception(kind: str, name: str, text: str) -> Exception:
    """Return an exception of the built-in class ``kind``, or one that only says what it was."""
    text = text if name == kind else f"{name}: {text}"
    found = getattr(builtins, kind, None)
    if (
        isinstance(found, type)
        and issubclass(found, Exception)
        and not issubclass(found, CONTROL_FLOW)
    ):
        try:
            return found(text[:300])
        except TypeError:  # a Unicode error takes more arguments
            pass
    return RuntimeError(f"{kind}: {text}"[:300])


def _text(error: BaseException) -> str:
    try:
        return str(error)[:300]
    except BaseException:
        return "(its text cannot be had)"


class RemoteFunction(plain.Reference):
    """A function of the program's, by its name."""

    def __init__(self, program: RemoteProgram, name: str) -> None:
        super().__init__(name)
        self._program = program
        self.__name__ = self.__qualname__ = name

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Call the function there; arguments are copies, so changes of them are not seen here."""
        return self._program.call(self._target, arguments, keywords)


class RemoteRecordClass(RemoteFunction):
    """A dataclass of the program's, whose instances the tests can write without the program."""

    def __init__(self, program: RemoteProgram, name: str, shape: plain.Shape) -> None:
        super().__init__(program, name)
        self._shape = shape

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Return the tests' own record if the arguments name every field once, else a new one."""
        written = dict(zip(self._shape.fields, arguments, strict=False))
        given = len(arguments) + len(keywords)
        written |= keywords
        if given != len(written) or written.keys() != set(self._shape.fields) or not written:
            return super().__call__(*arguments, **keywords)
        return WrittenRecord(self, [written[name] for name in self._shape.fields])


class RemoteValue(plain.Handle):
    """A value of the program's that stays with it; its public methods can be called.

    The fields of a dataclass can be read, too, and compared with those that the tests wrote.
    """

    __slots__ = ("_fields", "_program", "_shape")

    def __init__(self, program: RemoteProgram, kept: plain.Kept) -> None:
        super().__init__(kept.number)
        self._program = program
        self._shape = kept.shape
        self._fields = list(kept.fields)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if self._shape is not None and name in self._shape.fields:
            return self._program.get([self._target, name])
        return RemoteMethod(self._program, [self._target, name])

    def __eq__(self, other: object) -> bool:
        if (
            isinstance(other, RemoteValue)
            and self._shape == other._shape
            and (isinstance(self, WrittenRecord) or isinstance(other, WrittenRecord))
        ):
            return self._fields == other._fields
        return self._refuse()

    __hash__ = None

    def _refuse(self, *_: object) -> bool:
        raise self._program.fail(LOOKED)


class RemoteCallable(RemoteValue):
    """Such a value that can be called, as the function that a function returned."""

    __slots__ = ()

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Call the value there."""
        return self._program.call(self._target, arguments, keywords)


class WrittenRecord(RemoteValue):
    """An instance of the program's dataclass that the tests wrote: ``Point(1, 2)``.

    The program learns of it only when it is handed over or asked about. If it constructed what the
    tests expect, it could return that.
    """

    __slots__ = ("_class", "_made")

    def __init__(self, record: RemoteRecordClass, fields: Sequence[Any]) -> None:
        self._class = record
        self._program = record._program
        self._shape = record._shape
        self._fields = list(fields)
        self._made: Any = None

    @property
    def _target(self) -> Any:
        if self._made is None:
            made = self._program.call(self._class._target, self._fields, {})
            self._made = made._target if isinstance(made, RemoteValue) else self._refuse()
        return self._made


class RemoteMethod(plain.Handle):
    """A method of such a value: it can be called, and not looked at, for it may be none."""

    __slots__ = ("_program",)

    def __init__(self, program: RemoteProgram, target: list[Any]) -> None:
        super().__init__(target)
        self._program = program

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Call the method there."""
        return self._program.call(self._target, arguments, keywords)

    def _refuse(self, *_: object) -> bool:
        raise self._program.fail(LOOKED)


class RemoteProgram(Peer):
    """The untrusted program behind the socket ``channel``: calls its functions, gets its values.

    ``failure`` says why the program failed for good, or is empty. Tests that catch every exception
    do not hide it, so look at it before believing them.
    """

    def __init__(self, channel: socket.socket) -> None:
        super().__init__(channel)
        self.failure = ""

    def load(self) -> None:
        """Wait until the program is loaded.

        Raises:
            ProgramError: if it raises while it is.
        """
        kind, *rest = self._receive()
        if kind == "failed" and len(rest) == 2:
            self.fail(f"{rest[0]}: {rest[1]}" if rest[1] else str(rest[0]))
        if kind != "loaded":
            self.fail("the program broke the protocol of calls")

    def function(self, name: str) -> RemoteFunction:
        """Return a function that calls the program's function ``name``."""
        kind, rest = self._ask("shape", name)
        shape = self._result(kind, rest)
        try:
            found = plain.read_shape(shape)
        except (plain.NotPlainData, TypeError, ValueError):
            raise self.fail("the program broke the protocol of calls") from None
        if found is None:
            return RemoteFunction(self, name)
        return RemoteRecordClass(self, name, found)

    def get(self, target: Any) -> Any:
        """Return the program's global, or an attribute of its value; a ``Handle`` if not plain.

        Raises:
            AttributeError: if it has none.
        """
        return self._result(*self._ask("get", target))

    def call(self, target: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """Return the result of a call."""
        return self._call(target, arguments, keywords, False)

    def call_in_place(
        self, target: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]
    ) -> tuple[Any, Sequence[Any]]:
        """Return the result of a call, and copies of the arguments as it left them."""
        found = self._call(target, arguments, keywords, True)
        result, after = found if type(found) is tuple and len(found) == 2 else (None, None)
        if type(after) is list and len(after) == len(arguments):
            return result, after
        raise self.fail("the program broke the protocol of calls")

    def _call(
        self, target: Any, arguments: Sequence[Any], keywords: Mapping[str, Any], in_place: bool
    ) -> Any:
        text = plain.encode((tuple(arguments), dict(keywords)), self._keep)
        return self._result(*self._ask("call", target, text, in_place))

    def _keep(self, value: Any) -> int:
        if not callable(value) and not hasattr(type(value), "__next__"):
            self.fail(f"the tests hand over a {type(value).__name__}, which is not plain data")
        return super()._keep(value)

    def _ask(self, *question: Any) -> tuple[str, list[Any]]:
        if self.failure:
            raise ProgramError(self.failure)
        return super()._ask(*question)

    def _send(self, message: Sequence[Any]) -> None:
        try:
            super()._send(message)
        except OSError:
            self.fail("the program has ended")

    def _result(self, kind: str, rest: Sequence[Any]) -> Any:
        if all(type(part) is str for part in rest):
            if kind == "value" and len(rest) == 1:
                return self._decode(rest[0])
            if kind == "raised" and len(rest) == 3:
                error = _exception(*rest)
                error.of_program = True  # type: ignore[attr-defined]
                raise error
            if kind == "refused" and len(rest) == 1:
                self.fail(f"the program gave {rest[0]}")
        raise self.fail("the program broke the protocol of calls")

    def _decode(self, text: Any) -> Any:
        try:
            return plain.decode(text, self._remote, self._own)
        except plain.NotPlainData as error:
            raise self.fail(str(error)) from None

    def _remote(self, kept: plain.Kept) -> Any:
        if kept.kind == "iterator":
            return self._items(kept.number)
        return (RemoteCallable if kept.kind == "callable" else RemoteValue)(self, kept)

    def _own(self, number: Any) -> Any:
        if type(number) is not int or not 0 <= number < len(self._kept):
            self.fail("the program broke the protocol of calls")
        return self._kept[number]

    def _answer(self, kind: str, parts: Sequence[Any]) -> Sequence[str]:
        """Call a function of the tests', or go on with an iterator, for the program."""
        if len(parts) != 1 + (kind == "call") or kind not in ("call", "next"):
            self.fail("the program broke the protocol of calls")
        value = self._own(parts[0])
        arguments, keywords = self._decode(parts[1]) if kind == "call" else ((), {})
        try:
            if kind == "next":
                return self._next(value)
            return ["value", plain.encode(value(*arguments, **keywords), self._keep)]
        except ProgramError:
            raise
        except AssertionError as error:  # the program could catch it
            raise self.fail(
                f"an assert in a function of the tests failed: {_text(error)}"
            ) from None
        except BaseException as error:
            return _raised(error)

    def _receive(self) -> list[Any]:
        try:
            line = self._lines.readline(MAX_LINE)
        except OSError:
            line = b""
        if not line.endswith(b"\n"):
            self.fail("returned more than can be read" if line else "the program has ended")
        try:
            parts = json.loads(line)
        except (ValueError, RecursionError):
            parts = None
        if not isinstance(parts, list) or not parts or type(parts[0]) is not str:
            self.fail("the program broke the protocol of calls")
        return parts

    def fail(self, reason: str) -> NoReturn:
        """Have the program fail for good.

        Raises:
            ProgramError: always.
        """
        self.failure = self.failure or reason[:300]
        raise ProgramError(self.failure)


def changed(
    function: Any, places: Sequence[int], *arguments: Any, **keywords: Any
) -> tuple[Any, list[Any]]:
    """Call a function; return its result, and the arguments at ``places`` as the call left them.

    Only what can be changed in place is another object then.
    """
    if not isinstance(function, RemoteFunction | RemoteMethod | RemoteCallable):
        return function(*arguments, **keywords), [arguments[place] for place in places]
    result, after = function._program.call_in_place(function._target, arguments, keywords)
    kinds = (list, dict, set, bytearray)
    left = [
        after[place] if type(arguments[place]) is type(after[place]) in kinds else arguments[place]
        for place in places
    ]
    return result, left


class Callback(plain.Reference):
    """A function of the tests', as the program has it."""

    def __init__(self, program: ServedProgram, number: int) -> None:
        super().__init__(number)
        self._program = program

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Call the function in the tests' process."""
        return self._program.call_back(self._target, arguments, keywords)


class ServedProgram(Peer):
    """The untrusted program's end, in its own process, where nothing is to be trusted."""

    def __init__(self, channel: socket.socket) -> None:
        super().__init__(channel)
        self._module = sys.modules[NAME] = types.ModuleType(NAME)

    def serve(self, files: Sequence[tuple[str, bytes]]) -> NoReturn:
        """Load the program, file after file, then answer questions until the channel closes."""
        try:
            for path, source in files:
                exec(compile(source, path, "exec", dont_inherit=True), self._module.__dict__)
        except BaseException as error:
            self._send(["failed", type(error).__name__, _text(error)])
            os._exit(1)
        self._send(["loaded"])
        while True:
            kind, *parts = self._receive()
            self._send(self._answer(kind, parts))

    def call_back(self, number: int, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """Call a function of the tests'."""
        text = plain.encode((tuple(arguments), dict(keywords)), self._keep)
        return self._result(*self._ask("call", number, text))

    def _receive(self) -> list[Any]:
        line = self._lines.readline()
        if not line:
            os._exit(0)
        message: list[Any] = json.loads(line)
        return message

    def _answer(self, kind: str, parts: Sequence[Any]) -> Sequence[str]:
        try:
            if kind == "shape":
                return ["value", plain.encode(self._shape(parts[0]))]
            value = self._find(parts[0])
            if kind == "next":
                return self._next(value)
            if kind == "get":
                return ["value", plain.encode(value, self._keep)]
            arguments, keywords = plain.decode(parts[1], self._of_tests, self._find)
            arguments = list(arguments)
            result = value(*arguments, **keywords)
            return ["value", plain.encode((result, arguments) if parts[2] else result, self._keep)]
        except plain.NotPlainData as error:
            return ["refused", _text(error)]
        except BaseException as error:
            return _raised(error)

    def _result(self, kind: str, rest: Sequence[Any]) -> Any:
        if kind == "raised":
            raise _exception(*rest)
        return plain.decode(rest[0], self._of_tests, self._find)

    def _of_tests(self, kept: plain.Kept) -> Any:
        return self._items(kept.number) if kept.kind == "iterator" else Callback(self, kept.number)

    def _shape(self, name: str) -> list[Any] | None:
        kind = getattr(self._module, name, None)
        shape = plain.shape_of(kind)
        if shape is None or hasattr(kind, "__post_init__"):  # which may refuse or change a field
            return None
        return [shape.name, list(shape.fields)]

    def _find(self, target: Any) -> Any:
        """Return the target of a question: a value by its number, a value's attribute, a global.

        LeetCode's ``Solution().f`` is a method of a new object.
        """
        if isinstance(target, int):
            return self._kept[target]
        if isinstance(target, list):
            return getattr(self._kept[target[0]], target[1])
        maker, _, method = target.partition("().")
        return (
            getattr(getattr(self._module, maker)(), method)
            if method
            else getattr(self._module, target)
        )


def answer_calls(files: Sequence[tuple[str, bytes]], channel: int) -> NoReturn:
    """Serve a program, given as paths and contents, over the socket ``channel``."""
    ServedProgram(socket.socket(fileno=channel)).serve(files)
