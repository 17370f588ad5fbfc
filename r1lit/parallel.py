"""Work in several threads, ended by its first failure."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

T = TypeVar("T")
Item = TypeVar("Item")


def in_parallel(
    work: Callable[[Item, threading.Event], T], items: Sequence[Item], num_threads: int
) -> list[T]:
    """Return ``work(item, stop)`` of each item, in order, ``num_threads`` at a time.

    The first failure sets ``stop`` and is raised once those under way have ended.
    """
    stop = threading.Event()
    with ThreadPoolExecutor(min(num_threads, max(1, len(items)))) as pool:
        futures = [pool.submit(work, item, stop) for item in items]
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [future.result() for future in futures]
