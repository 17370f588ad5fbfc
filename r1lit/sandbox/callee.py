"""The judged side of a call: it loads a program and calls its functions for the other side.

All of this runs in the judged program's own process and under its power. Nothing here is relied
upon: whatever it says is read as plain data, and whatever it does it could have computed.
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
    say = _teller(connection)
    try:
        for path, source in files:
            exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)
    except BaseException as error:
        say("failed", type(error).__name__, _text(error))
        os._exit(1)
    say("loaded")
    values: list[Any] = []

    def handle_of(value: Any) -> int:
        values.append(value)
        return len(values) - 1

    for line in lines:
        name, call = json.loads(line)
        try:
            target = getattr(module, name)
            result = target
            if call is not None:
                arguments, keywords = plain.decode(call, values.__getitem__)
                result = target(*arguments, **keywords)
            stays = call is None or isinstance(target, type)
            text = plain.encode(result, handle_of if stays else None)
        except plain.NotPlain as error:
            say("refused", _text(error))
        except BaseException as error:
            kinds = [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins"]
            say("raised", kinds[0], type(error).__name__, _text(error))
        else:
            say("value", text)
    os._exit(0)


def _teller(connection: socket.socket) -> Any:
    def say(*parts: str) -> None:
        connection.sendall(json.dumps(parts).encode() + b"\n")

    return say


def _text(error: BaseException) -> str:
    try:
        return str(error)[:300]
    except BaseException:
        return "(its text cannot be had)"
