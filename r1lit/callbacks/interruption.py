"""Ctrl-C and SIGTERM in a fit: its iteration is finished and saved, or an earlier one is."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.utilities.exceptions import SIGTERMException

from r1lit.ranks import of_all_ranks
from r1lit.sigterm import LIMIT_S, calling_on_sigterm, end_after

SAVING_S = 60.0
"""Seconds that a checkpoint which is being written is waited for."""


class Interruption:
    """Listens for Ctrl-C and SIGTERM while a fit trains.

    After Ctrl-C the iteration is finished; a second one ends it at once. After SIGTERM the
    iteration has ``grace_s`` seconds. Then the main thread raises ``SIGTERMException``. A process
    that still waits for something ends at ``LIMIT_S``, or that much after a longer grace. More
    SIGTERMs do nothing: ``timeout`` sends two.

    Before the first iteration there is nothing to save, and both end the run at once; so they do in
    the evaluation before it, in which this does not listen yet.

    Args:
        grace_s: seconds that an iteration may still take after SIGTERM.
    """

    def __init__(self, grace_s: float) -> None:
        self.grace_s = grace_s
        self.lock = threading.RLock()  # of what is written on disk
        self.is_begun = False
        self._num_ranks = 1
        self._heard: int | None = None
        self._is_over = self._is_raised = False
        self._ended = threading.Event()
        self._listening: ExitStack | None = None

    def listen(self, trainer: pl.Trainer) -> None:
        """Begin, in the main thread alone; Ctrl-C is left to Lightning where several ranks train.

        Lightning's own handler of SIGTERM waits for the end of the iteration, however long, and
        talks to the other ranks from within the handler.
        """
        self.stop()
        if threading.current_thread() is not threading.main_thread():
            return
        self._num_ranks, self._heard = trainer.world_size, None
        self._is_over = self._is_raised = False
        self._ended = threading.Event()
        launcher: Any = trainer.strategy.launcher

        def on_sigterm(*_: Any) -> None:
            if self._is_raised:
                return
            if self._is_over or not self.is_begun:
                self._is_raised = True
                raise SIGTERMException
            if self._heard is None and getattr(launcher, "procs", None):
                launcher.kill(signal.SIGTERM)
                launcher.procs.clear()  # Lightning's observer would kill us once one of them ends
            if self._heard is None and trainer.is_global_zero:
                words = f"SIGTERM: saving this iteration if it ends within {self.grace_s:g} s"
                print(f"{words}, otherwise an earlier one", file=sys.stderr, flush=True)
            self._heard = signal.SIGTERM

        def on_ctrl_c(*_: Any) -> None:
            if self._heard is not None or not self.is_begun:
                raise KeyboardInterrupt
            self._heard = signal.SIGINT
            words = "interrupted: finishing the iteration and saving it"
            print(f"{words}; Ctrl-C again ends at once", file=sys.stderr, flush=True)

        self._listening = ExitStack()
        self._handle(signal.SIGTERM, on_sigterm)
        # one that was begun in the background ignores it
        if trainer.world_size == 1 and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            self._handle(signal.SIGINT, on_ctrl_c)
        self._listening.enter_context(calling_on_sigterm(self._count_down))

    def _handle(self, number: int, handler: Callable[..., None]) -> None:
        before = signal.signal(number, handler)

        def give_back() -> None:
            if signal.getsignal(number) is handler:  # Lightning ignores a Ctrl-C after the first
                signal.signal(number, before)

        assert self._listening is not None
        self._listening.callback(give_back)

    def _count_down(self) -> None:
        if self.is_begun and not self._ended.wait(self.grace_s):
            with self.lock:  # the main thread may be writing what it has just finished
                if self._ended.is_set():
                    return
                self._is_over = True
                main = threading.main_thread().ident
                assert main is not None
                signal.pthread_kill(main, signal.SIGTERM)
        if self._ended.wait(max(1.0, LIMIT_S - self.grace_s)):
            return
        self.lock.acquire(timeout=SAVING_S)
        if not self._ended.is_set():
            end_after(0)

    def stop(self) -> None:
        """Give the signals back to those who had them before."""
        with self.lock:
            self._ended.set()
        self.is_begun = False
        if self._listening is not None:
            self._listening.close()
            self._listening = None

    def heard(self) -> bool:
        """Return whether a signal has come, to any rank; all of them call it."""
        if self._num_ranks == 1:
            return self._heard is not None
        found = [number for number in of_all_ranks(self._heard) if number is not None]
        self._heard = found[0] if found else None
        return bool(found)

    @property
    def error(self) -> BaseException:
        """The exception to raise once everything is saved."""
        return SIGTERMException() if self._heard == signal.SIGTERM else KeyboardInterrupt()

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Within, this process is not ended by SIGTERM, and nothing else is saved."""
        with self.lock:
            yield
