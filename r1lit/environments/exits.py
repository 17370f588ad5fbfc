"""Calls of ``os._exit`` within environments, made errors: they would end a run without a word."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

_EXIT = os._exit
_LOCK = threading.Lock()
_OWN = threading.local()
_num_open = 0


@contextmanager
def no_exit(what: str) -> Iterator[None]:
    """Refuse ``os._exit`` in this thread and process; others, and forked children, may call it.

    Raises:
        ValueError: naming ``what``, from within a call of ``os._exit``.
    """
    global _num_open
    before = getattr(_OWN, "guarded", None)
    with _LOCK:
        _num_open += 1
        os._exit = _exit
    _OWN.guarded = what, os.getpid()
    try:
        yield
    finally:
        _OWN.guarded = before
        with _LOCK:
            _num_open -= 1
            if not _num_open:
                os._exit = _EXIT


def _exit(status: int) -> NoReturn:
    what, pid = getattr(_OWN, "guarded", None) or ("", 0)
    if pid == os.getpid():
        raise ValueError(
            f"{what} called os._exit({status}), which would end the run; let it raise an error"
        )
    _EXIT(status)
