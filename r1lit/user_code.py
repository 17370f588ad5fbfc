"""A user's own code, such as a reward function: crashes, slow calls and ``async`` functions."""

from __future__ import annotations

import inspect
import os
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from r1lit.errors import in_one_line

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

_LOCK = threading.Lock()
_LOOPS: dict[tuple[str, int], AbstractEventLoop] = {}  # by name and process id


class OwnCodeError(ValueError):
    """A reward function, a verifier or the like of the user's crashed; its cause is the crash."""


@contextmanager
def user_code(what: str, owner: object) -> Iterator[None]:
    """Turn a crash within into an error that names ``what`` and where it crashed.

    A ``ValueError`` of r1lit's own classes is meant for the user already, and passes.

    Raises:
        OwnCodeError: in the place of any exception within.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, ValueError) and type(owner).__module__.startswith("r1lit."):
            raise
        raise crash_error(what, error, traceback.extract_tb(error.__traceback__)[-1]) from error


def crash_error(what: str, error: Exception, place: traceback.FrameSummary) -> OwnCodeError:
    """Return the error that names what crashed, with which error and where."""
    where = f"{place.filename}, line {place.lineno}"
    return OwnCodeError(f"{what} crashed with {in_one_line(error)} ({where})")


@contextmanager
def warned_if_slow(seconds: float, line: str) -> Iterator[None]:
    """Warn with ``line`` once what runs within has taken so many seconds, while it still runs."""
    timer = threading.Timer(seconds, warnings.warn, [line])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def awaited(value: Any, name: str, run: Callable[[AbstractEventLoop], None] | None = None) -> Any:
    """Return the result of an ``async`` function; other values as they are.

    All of one ``name`` in a process run in one event loop, in a thread of its own: what they share,
    such as connections, belongs to one loop. ``run`` runs it forever.
    """
    if not inspect.isawaitable(value):
        return value
    import asyncio

    with _LOCK:
        loop = _LOOPS.get((name, os.getpid()))
        if loop is None:
            loop = _LOOPS[name, os.getpid()] = asyncio.new_event_loop()
            target = partial(run, loop) if run else loop.run_forever
            threading.Thread(target=target, name=name, daemon=True).start()

    async def result() -> Any:
        try:
            return await value
        except SystemExit as error:  # it would end the loop
            raise RuntimeError(f"SystemExit: {error}") from error

    return asyncio.run_coroutine_threadsafe(result(), loop).result()
