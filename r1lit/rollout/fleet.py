"""Several servers that share the work: who is up, who comes back, and who gets what."""

from __future__ import annotations

import threading
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any, Generic, Protocol, TypeVar

from r1lit.endpoint.client import PermanentError, RequestError

TICK_S = 0.2
PING_EVERY_S = 5.0
LONGEST_PAUSE_S = 15.0
MAX_TRIES = 10  # of one unit; a server that it kills each time would otherwise go on for ever


class Server(Protocol):
    """What a fleet needs of a server."""

    url: str

    def ping(self) -> Future[Any]: ...  # noqa: D102


S = TypeVar("S", bound=Server)
U = TypeVar("U")
R = TypeVar("R")


class Fleet(Generic[S]):
    """Servers, each of them up, or on its way back in a thread of its own.

    One thread may ``renew`` while another one's ``share`` is under way.

    Args:
        servers: all of them.
        bring_up: makes a server ready, in a thread; a ``RequestError`` has it tried again, any
            other error is raised in the thread that uses the fleet.
        patience_s: seconds without any server after which the run stops.
    """

    def __init__(
        self, servers: Sequence[S], bring_up: Callable[[S], object], patience_s: float
    ) -> None:
        self.servers = list(servers)
        self.up: list[S] = []
        self._bring_up, self._patience_s = bring_up, patience_s
        self._coming: dict[int, Future[int]] = {}  # by the server's place
        self._failed: dict[int, str] = {}
        self._closed = threading.Event()
        self._last_up = time.monotonic()
        self._round = 0  # of ``renew``
        self._lock = threading.RLock()

    def renew(self) -> None:
        """Bring all up again; return when each is, or has failed once, and one is at least."""
        with self._lock:
            self._round += 1
            self.up.clear()
            self._failed.clear()
            self._last_up = time.monotonic()
        while not self.up or len(self.up) + len(self._failed) < len(self.servers):
            self.refresh()
            with self._lock:
                coming = list(self._coming.values())
            wait(coming, TICK_S, FIRST_COMPLETED)

    def lose(self, server: S, reason: object) -> None:
        """Give a server nothing more until it is up again."""
        with self._lock:
            if server in self.up:
                self.up.remove(server)
                warnings.warn(f"{server.url} is left out until it is back: {reason}", stacklevel=2)
            self._failed[self.servers.index(server)] = str(reason)

    def refresh(self) -> None:
        """Take up who has come back, and send for who is down.

        Raises:
            ValueError: if none has been up for ``patience_s``.
            Exception: of ``bring_up``.
        """
        with self._lock:
            self._refresh()

    def _refresh(self) -> None:
        for place, server in enumerate(self.servers):
            coming = self._coming.get(place)
            if coming is not None and coming.done():
                del self._coming[place]
                if coming.result() == self._round:  # else it may hold older weights
                    self.up.append(server)
                    self._failed.pop(place, None)
            elif coming is None and server not in self.up:
                self._coming[place] = Future()
                threading.Thread(
                    target=self._come_back,
                    args=(place, self._coming[place]),
                    daemon=True,
                    name=f"fleet-{place}",
                ).start()
        if self.up:
            self._last_up = time.monotonic()
        elif time.monotonic() - self._last_up > self._patience_s:
            last = next(iter([*self._failed.values()]), "none has answered")
            raise ValueError(
                f"urls: no server has been up for {self._patience_s:g} s; the last time, {last}."
                " Nothing was trained on what is missing: start one, and go on from the last"
                " checkpoint with --ckpt_path last"
            )

    def close(self) -> None:
        """Stop bringing servers back."""
        self._closed.set()

    def _come_back(self, place: int, done: Future[int]) -> None:
        pause_s = 0.5
        while not self._closed.is_set():
            began = self._round
            try:
                self._bring_up(self.servers[place])
                done.set_result(began)
                return
            except RequestError as error:
                self._failed[place] = str(error)
            except BaseException as error:
                done.set_exception(error)
                return
            self._closed.wait(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def share(
        self,
        units: Sequence[U],
        begin: Callable[[S, U], Future[Any]],
        finish: Callable[[S, U, Future[R]], R],
        on_done: Callable[[U, R], None],
        at_once: int,
    ) -> None:
        """Have every unit done by some server, whatever becomes of single ones.

        Whoever has least to do gets the next unit, ``at_once`` at most. If one fails or its server
        does not answer, all that the server has goes to others, and it is brought up before it
        gets more.

        Raises:
            ValueError: if a unit is refused or fails ``MAX_TRIES`` times, or as ``refresh``.
        """
        waiting, tries = deque(range(len(units))), Counter[int]()
        running: dict[Future[Any], tuple[S, int]] = {}
        pings: dict[Future[Any], S] = {}
        silent: dict[int, BaseException] = {}  # who has not answered once
        next_ping = time.monotonic() + PING_EVERY_S

        def lose(server: S, reason: object) -> None:
            mine = [reply for reply, (there, _) in running.items() if there is server]
            back = sorted(running.pop(reply)[1] for reply in mine)
            waiting.extendleft(reversed(back))
            for reply in mine:
                reply.cancel()
            self.lose(server, reason)

        try:
            while waiting or running:
                self.refresh()
                holding = {s.url: s for s, _ in running.values() if s not in self.up}
                for server in holding.values():
                    if reason := self._failed.get(self.servers.index(server)):
                        lose(server, reason)  # it has not taken new weights
                load = Counter({self.servers.index(s): 0 for s in self.up})
                load.update(self.servers.index(server) for server, _ in running.values())
                while waiting and load and min(load.values()) < at_once:
                    place = min(load, key=lambda place: load[place])
                    index, load[place] = waiting.popleft(), load[place] + 1
                    reply = begin(self.servers[place], units[index])
                    running[reply] = self.servers[place], index
                if time.monotonic() > next_ping:
                    pinged = set(map(id, pings.values()))
                    pings |= {s.ping(): s for s in self.up if id(s) not in pinged}
                    next_ping = time.monotonic() + PING_EVERY_S
                if running:
                    wait(running, TICK_S, FIRST_COMPLETED)
                else:
                    self._closed.wait(TICK_S)
                for reply in [reply for reply in running if reply.done()]:
                    if reply not in running:
                        continue  # its server was lost a moment ago
                    server, index = running[reply]
                    try:
                        result = finish(server, units[index], reply)
                    except PermanentError as error:
                        raise ValueError(str(error)) from error
                    except RequestError as error:
                        tries[index] += 1
                        if tries[index] == MAX_TRIES:
                            raise ValueError(
                                f"urls: a request has failed {MAX_TRIES} times; the last time,"
                                f" {server.url}: {error}"
                            ) from error
                        lose(server, error)
                        continue
                    del running[reply]
                    on_done(units[index], result)
                for ping in [ping for ping in pings if ping.done()]:
                    server, fault = pings.pop(ping), ping.exception()
                    if fault is None or server not in self.up:
                        silent.pop(id(server), None)
                    elif silent.setdefault(id(server), fault) is fault:
                        pings[server.ping()] = server  # a torn connection is no dead server
                    else:
                        del silent[id(server)]
                        lose(server, f"no answer ({type(fault).__name__})")
        finally:
            for reply in (*running, *pings):
                reply.cancel()
