"""Sharing work among servers over real HTTP: slow, broken, hanging and dead ones."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from http_server import HANG_UP, HTTPServer, Received

from r1lit.endpoint.client import Client, Endpoint, run
from r1lit.rollout.feed import RequestFeed
from r1lit.rollout.vllm import engine as module
from r1lit.rollout.vllm.engine import Fleet


class Peer(HTTPServer):
    """A server that echoes numbers, and the client's side of it; ``fault`` may change a reply.

    ``fault`` gets how many numbers were asked for so far, and returns a status, or -1 to hang up,
    or -2 to hang.
    """

    def __init__(self, seconds: float = 0.0, fault: Callable[[int], int] | None = None) -> None:
        self.asked: list[int] = []
        self.ups = self.most = self.now = 0
        self.hangs = threading.Event()
        self._seconds, self._fault = seconds, fault
        super().__init__(self._answer)
        self.client = Client(Endpoint(url=self.url, max_retries=0, timeout_s=30), "urls")
        self.quick = Client(Endpoint(url=self.url, max_retries=0, timeout_s=0.5), "urls")

    def _answer(self, request: Received) -> Any:
        word, status = request.path.strip("/"), 200
        if word.isdigit():
            with self.lock:
                self.asked.append(int(word))
                self.now += 1
                self.most = max(self.most, self.now)
                status = self._fault(len(self.asked)) if self._fault else 200
            time.sleep(self._seconds)
            with self.lock:
                self.now -= 1
        if status == -2:
            self.hangs.set()
        while self.hangs.is_set():
            time.sleep(0.05)
        return HANG_UP if status < 0 else (status, {"word": word})

    async def label(self) -> str:
        return await self.quick.send("ping", lambda reply: reply["word"])

    async def bring_up(self) -> None:
        await self.quick.send("up", lambda reply: None)
        self.ups += 1

    async def work(self, number: int) -> int:
        return await self.client.send(str(number), lambda reply: int(reply["word"]))

    def close(self) -> None:
        self.hangs.clear()
        super().close()


@pytest.fixture
def peers() -> Iterator[Callable[..., Peer]]:
    made: list[Peer] = []

    def make(*args: Any, **options: Any) -> Peer:
        made.append(Peer(*args, **options))
        return made[-1]

    yield make
    for peer in made:
        peer.close()


def share(peers: list[Peer], count: int = 40, at_once: int = 2, patience_s: float = 20.0) -> Fleet:
    """Share numbers, and check that each is done once."""
    fleet = Fleet(peers, Peer.bring_up, patience_s)
    done: list[int] = []

    async def share() -> None:
        await fleet.renew()
        try:
            await fleet.share(
                list(range(count)),
                Peer.work,
                lambda number, result: done.append(result) if number == result else None,
                at_once,
            )
        finally:
            await fleet.close()

    run(share())
    assert sorted(done) == list(range(count))
    return fleet


def test_a_slow_server_does_not_hold_the_others(peers):
    slow, fast = peers(1.0), peers(0.01)
    share([slow, fast])
    assert 3 * len(slow.asked) < len(fast.asked), "as on a loaded machine; else 2 to 38"
    assert slow.most <= 2 and fast.most <= 2


@pytest.mark.parametrize("status", [500, 503, -1])
def test_what_a_broken_server_had_goes_to_others(peers, status):
    broken, other = peers(0.02, lambda n: status if n > 3 else 200), peers(0.02)
    with pytest.warns(UserWarning, match="is left out until it is back"):
        share([broken, other])
    assert other.ups == 1 and broken.ups > 1, "it is brought up before it gets more"


def test_a_server_alone_is_waited_for(peers):
    alone = peers(0.0, lambda n: 500 if n in (5, 6) else 200)
    with pytest.warns(UserWarning, match="status 500"):
        share([alone])
    assert alone.ups in (2, 3)


def test_a_server_that_hangs_is_left(peers, monkeypatch):
    monkeypatch.setattr(module, "PING_EVERY_S", 0.2)
    hangs, other = peers(0.02, lambda n: -2 if n == 3 else 200), peers(0.02)
    with pytest.warns(UserWarning, match="no answer"):
        fleet = share([hangs, other])
    assert fleet.up == [other]


def test_no_server_for_longer_than_patience(peers):
    dead = peers()
    dead.close()
    with pytest.raises(ValueError, match=r"no server has been up for 1 s; .*ConnectError") as error:
        share([dead], patience_s=1.0)
    assert "\n" not in str(error.value)


def test_a_unit_that_never_succeeds_and_one_that_is_refused(peers):
    peer = peers(0.0, lambda n: 500)
    with (
        pytest.warns(UserWarning, match="left out"),
        pytest.raises(ValueError, match="has failed 10 times; the last time"),
    ):
        share([peer], count=1, patience_s=60)
    assert len(peer.asked) == 10
    with pytest.raises(ValueError, match=r"urls: .* refused the request, status 400"):
        share([peers(0.0, lambda n: 400)], count=1)


def test_only_some_of_the_servers_are_needed_at_first(peers):
    dead, alive = peers(), peers()
    dead.close()
    fleet = share([dead, alive])
    assert fleet.up == [alive]


def test_work_that_joins_is_done_too_and_a_dead_server_loses_none_of_it(peers):
    dies, other = peers(0.02, lambda n: -1 if n > 4 else 200), peers(0.02)
    fleet = Fleet([dies, other], Peer.bring_up, 20.0)
    feed, done = RequestFeed(4), list[int]()

    def on_done(number: int, _: int) -> None:
        done.append(number)
        if number < 20:  # some time later, from another thread, as an environment does
            threading.Timer(0.05, feed.add, [number + 4]).start()
        elif number == 23:
            threading.Timer(0.5, feed.end).start()

    async def share() -> None:
        news = asyncio.Event()
        feed.on_change = partial(asyncio.get_running_loop().call_soon_threadsafe, news.set)
        await fleet.renew()
        more = module.More(feed.take, lambda: feed.over, news)
        await fleet.share(range(4), Peer.work, on_done, 2, more)
        await fleet.close()

    with pytest.warns(UserWarning, match="is left out until it is back"):
        run(share())
    assert sorted(done) == list(range(24)) and len(dies.asked) > 4


def test_an_error_of_whoever_adds_work_ends_it(peers):
    fleet, feed = Fleet([peers(0.02)], Peer.bring_up, 20.0), RequestFeed(1)

    async def share() -> None:
        news = asyncio.Event()
        feed.on_change = partial(asyncio.get_running_loop().call_soon_threadsafe, news.set)
        await fleet.renew()
        try:
            more = module.More(feed.take, lambda: feed.over, news)
            await fleet.share([0], Peer.work, lambda *_: None, 2, more)
        finally:
            await fleet.close()

    threading.Timer(0.3, feed.end, [LookupError("no template")]).start()
    with pytest.raises(LookupError, match="no template"):
        run(share())


def test_servers_are_renewed_while_they_work(peers):
    """What one had that is not renewed goes to the others; those that are go on with theirs."""
    stays, hangs = peers(0.1), peers(0.1)
    fleet = Fleet([stays, hangs], Peer.bring_up, 20.0)
    done: list[int] = []

    async def renew_and_share() -> None:
        await fleet.renew()
        sharing = asyncio.create_task(
            fleet.share(range(40), Peer.work, lambda _, n: done.append(n), 2)
        )
        await asyncio.sleep(0.3)
        await fleet.renew()
        hangs.hangs.set()
        await fleet.renew()
        assert fleet.up == [stays] and stays.ups == 3 and not sharing.done()
        await sharing
        await fleet.close()

    started = time.monotonic()
    run(renew_and_share())
    assert sorted(done) == list(range(40))
    assert time.monotonic() - started < module.PING_EVERY_S, "it was not told by a ping"
