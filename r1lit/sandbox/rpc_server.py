"""The untrusted program's side of function calls: a small RPC server.

All of this runs in the program's own process, which the program can change as it likes. So nothing
here is trusted: the client reads its replies as plain data only.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import types
from collections.abc import Sequence
from typing import Any, NoReturn

from r1lit.sandbox import plain

NAME = "solution"


def answer_calls(files: Sequence[tuple[str, bytes]], channel: int) -> NoReturn:
    """Load a program, file after file, then answer one call a line until the channel closes.

    ``files`` are paths and contents.
    """
    connection = socket.socket(fileno=channel)
    lines = connection.makefile("r", encoding="ascii")
    module = types.ModuleType(NAME)
    sys.modules[NAME] = module
    send = _sender(connection)
    try:
        for path, source in files:
            exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)
    except BaseException as error:
        send("failed", type(error).__name__, _text(error))
        os._exit(1)
    send("loaded")
    values: list[Any] = []

    def handle_of(value: Any) -> int:
        values.append(value)
        return len(values) - 1

    for line in lines:
        name, call = json.loads(line)
        try:
            target = _target(module, name, values)
            result = target
            if call is not None:
                arguments, keywords = plain.decode(call, values.__getitem__)
                result = target(*arguments, **keywords)
            stays = call is None or isinstance(target, type)
            text = plain.encode(result, handle_of if stays else None)
        except plain.NotPlainData as error:
            send("refused", _text(error))
        except BaseException as error:
            kinds = [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins"]
            send("raised", kinds[0], type(error).__name__, _text(error))
        else:
            send("value", text)
    os._exit(0)


def _target(module: types.ModuleType, name: Any, values: Sequence[Any]) -> Any:
    """Return what a request names: a global, LeetCode's ``Solution().f``, or a value's method."""
    if isinstance(name, list):
        return getattr(values[name[0]], name[1])
    maker, _, method = name.partition("().")
    return getattr(getattr(module, maker)(), method) if method else getattr(module, name)


def _sender(connection: socket.socket) -> Any:
    def send(*parts: str) -> None:
        connection.sendall(json.dumps(parts).encode() + b"\n")

    return send


def _text(error: BaseException) -> str:
    try:
        return str(error)[:300]
    except BaseException:
        return "(its text cannot be had)"
