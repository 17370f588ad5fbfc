"""A Python program run in this very process, as ``python3 main.py`` would run it.

The process was forked for it and is already confined: starting a second interpreter would take ten
times as long.
"""

from __future__ import annotations

import _sitebuiltins
import atexit
import builtins
import contextlib
import os
import sys
import threading
import traceback
import types
from collections.abc import Sequence
from typing import Any, NoReturn

CORES = 2


def become_python(directory: str, packages: Sequence[str]) -> None:
    """Give this process the standard streams, path and builtins of a fresh interpreter.

    It imports from ``directory``, from the standard library, and from the folders ``packages``.
    """
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", errors="surrogateescape")  # type: ignore[misc]  # noqa: SIM115
    sys.stdout = sys.__stdout__ = open(1, "w", encoding="utf-8", errors="surrogateescape")  # type: ignore[misc]  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(  # type: ignore[misc]  # noqa: SIM115
        2, "w", encoding="utf-8", errors="backslashreplace", buffering=1
    )
    sys.path[:] = [directory, *sys.path, *packages]
    for name in [name for name in sys.modules if name.partition(".")[0] == "r1lit"]:
        del sys.modules[name]
    os.cpu_count = lambda: CORES  # what multiprocessing.Pool() starts
    for name in ("exit", "quit"):
        setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D (i.e. EOF)"))


def read(path: str) -> tuple[str, bytes]:
    """Return the path and content of a program's file."""
    with open(path, "rb") as file:
        return path, file.read()


def run_main(file: tuple[str, bytes]) -> NoReturn:
    """Run a program, given as path and content, and end the process as the interpreter would."""
    path, source = file
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=path, __builtins__=builtins)
    sys.modules["__main__"] = module
    sys.argv = [path]
    status = 0
    try:
        exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)
    except SystemExit as end:
        status = exit_status(end.code)
    except BaseException:
        traceback.print_exc()
        status = 1
    leave(status)


def exit_status(code: Any) -> int:
    """Return the exit status for what ``sys.exit`` was given; print it if it is a message."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def leave(status: int) -> NoReturn:
    """Wait for threads, run what was registered for the exit, flush, and end the process."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    except BaseException:
        traceback.print_exc()
        status = status or 1
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(status)
