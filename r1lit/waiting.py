"""Waiting for code: calls that take long, ``async`` functions, and the event loops of threads."""

from __future__ import annotations

import inspect
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

_LOCK = threading.Lock()
_LOOPS: dict[tuple[str, int], AbstractEventLoop] = {}  # by name and process id


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


def event_loop(
    name: str, run: Callable[[AbstractEventLoop], None] | None = None
) -> AbstractEventLoop:
    """Return the process's event loop of a name, which runs forever in a thread of its own.

    What users of one name share, such as connections, belongs to one loop. ``run`` runs a new one.
    """
    import asyncio

    with _LOCK:
        loop = _LOOPS.get((name, os.getpid()))
        if loop is None:
            loop = _LOOPS[name, os.getpid()] = asyncio.new_event_loop()
            target = partial(run, loop) if run else loop.run_forever
            threading.Thread(target=target, name=name, daemon=True).start()
        return loop


def awaited(value: Any, name: str, run: Callable[[AbstractEventLoop], None] | None = None) -> Any:
    """Return the result of an ``async`` function, from the loop of a name; other values as such."""
    if not inspect.isawaitable(value):
        return value
    import asyncio

    async def result() -> Any:
        try:
            return await value
        except SystemExit as error:  # it would end the loop
            raise RuntimeError(f"SystemExit: {error}") from error

    return asyncio.run_coroutine_threadsafe(result(), event_loop(name, run)).result()
