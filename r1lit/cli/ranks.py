"""The end of a run on several ranks: when one fails, all end and report its error.

Lightning's launcher and torchrun end the ranks of their own machine; srun ends those of every
machine. This file tells ranks that torchrun started on other machines about a failure, even while
they do not communicate.
"""

from __future__ import annotations

import atexit
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

POLL_S = 2.0
HEARD_S = POLL_S + 1.5
"""Seconds after which the other machines have heard of a failure and said so."""
CONNECT_S = 5.0
LOST_S = 30.0
"""Seconds without torchrun's store after which its machine counts as lost."""
KEY = "failed"
TORCHRUN = "TORCHELASTIC_RUN_ID"
BROKEN = re.compile(r"(closed|reset) by peer|remote process exited")
"""Pattern of gloo's and NCCL's errors when a rank is gone."""
GONE = "another rank has ended without a word; it was killed, or its machine ran out of memory"


@contextmanager
def ending_together() -> Iterator[None]:
    """Within, a failure of one rank ends all others, with its message. One process is left alone.

    Raises:
        ValueError: in the place of an error that comes after another rank's: that rank's message.
    """
    is_child = TORCHRUN in os.environ or os.environ.get("LOCAL_RANK", "0") != "0"
    if is_child and sys.platform == "linux":
        from r1lit.sandbox import confine

        confine.die_with_parent()  # or ranks would outlive a launcher that is killed
    ended = threading.Event()
    if TORCHRUN in os.environ:
        threading.Thread(target=_watch, args=(ended,), daemon=True, name="ranks").start()
    try:
        yield
    except BaseException as error:
        ended.set()
        other = _first_failure(error)
        if other is not None:
            raise ValueError(other) from error
        raise
    finally:
        ended.set()


def _first_failure(error: BaseException) -> str | None:
    """Tell the other ranks of an error.

    Returns:
        What another rank has told before, or that one is gone; None if the error is this rank's.
    """
    if isinstance(error, SystemExit) and not error.code:
        return None
    rank, num_ranks = _place()
    if num_ranks < 2:
        return None
    atexit.register(_leave)  # before Lightning's, which waits for the other ranks under NCCL
    is_gone = isinstance(error, RuntimeError) and BROKEN.search(str(error)) is not None
    own = f"rank {rank} on {socket.gethostname()}: {GONE if is_gone else _words(error)}"
    with suppress(RuntimeError):  # without a store ranks notice by themselves
        first = _store().compare_set(KEY, "", own).decode()
        if first == own and isinstance(error, Exception) and _has_other_machines():
            # once the error is printed; torchrun's store may be on this machine, and end with it
            atexit.register(time.sleep, HEARD_S)
        return first if is_gone or first != own else None
    return own if is_gone else None


def _watch(ended: threading.Event) -> None:
    """End this process once another rank has failed, or the store of torchrun is gone."""
    store, reached = None, time.monotonic()
    while not ended.wait(POLL_S):
        try:
            store = store or _store()
            failed = store.get(KEY).decode() if store.check([KEY]) else None
            reached = time.monotonic()
        except RuntimeError:
            store, failed = None, None
            lasting = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
            if lasting and time.monotonic() - reached > LOST_S:
                failed = f"torchrun's store on {os.environ['MASTER_ADDR']} does not answer any more"
        if failed is not None and not ended.wait(1.0):  # the one that failed speaks first
            if os.environ.get("LOCAL_RANK", "0") == "0":
                print(f"r1lit: error: {failed}", file=sys.stderr)
            _leave(1)


def _place() -> tuple[int, int]:
    """Return this process's rank and the number of ranks, as far as they are known."""
    dist: Any = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    if TORCHRUN in os.environ:
        return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    return 0, 1


def _has_other_machines() -> bool:
    return os.environ.get("LOCAL_WORLD_SIZE") != os.environ.get("WORLD_SIZE")


def _store() -> Any:
    """Return the store by which the ranks found each other; a RuntimeError if it is not there."""
    from torch.distributed import PrefixStore, TCPStore

    host, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    if not host or not port:
        raise RuntimeError("no store")
    wait = timedelta(seconds=CONNECT_S)
    store = TCPStore(host, int(port), is_master=False, wait_for_workers=False, timeout=wait)
    return PrefixStore(f"r1lit-{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", store)


def _words(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return "interrupted"
    text = next(iter(str(error).splitlines()), "")
    return text if isinstance(error, ValueError) else f"{type(error).__name__}: {text}"


def _leave(status: int = 2) -> None:
    """End this process at once."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
