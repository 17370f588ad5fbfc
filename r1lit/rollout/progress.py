"""Progress of a rollout, told to those who watch it: a display in a terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from r1lit.rollout.request import Completion, OnFinished

Watcher = Callable[[int, int], None]
"""Takes how many responses of a rollout have ended, and how many there are."""

_WATCHERS: list[Watcher] = []


def watch(watcher: Watcher) -> Callable[[], None]:
    """Call ``watcher`` as responses end, in this process; return what ends that."""
    _WATCHERS.append(watcher)

    def end() -> None:
        if watcher in _WATCHERS:
            _WATCHERS.remove(watcher)

    return end


def reported(on_finished: OnFinished, num_responses: int) -> OnFinished:
    """Return an engine's ``on_finished`` that tells watchers too; itself if nobody watches."""
    if not _WATCHERS:
        return on_finished
    num_ended = 0

    def finished(indices: Sequence[int], completions: Sequence[Completion]) -> None:
        nonlocal num_ended
        on_finished(indices, completions)
        num_ended += len(indices)
        tell()

    def tell() -> None:
        for watcher in tuple(_WATCHERS):
            watcher(num_ended, num_responses)

    tell()
    return finished
