"""Sharing work among servers over real HTTP: slow, broken, hanging and dead ones."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from r1lit.endpoint.client import Client, Endpoint, begin
from r1lit.rollout import fleet as module
from r1lit.rollout.fleet import Fleet


class Peer:
    """A server that echoes numbers, and the client's side of it; ``fault`` may change a reply.

    ``fault`` gets how many numbers were asked for so far, and returns a status, or -1 to hang up,
    or -2 to hang.
    """

    def __init__(self, seconds: float = 0.0, fault: Callable[[int], int] | None = None) -> None:
        self.asked: list[int] = []
        self.ups = self.most = 0
        self.hangs = threading.Event()
        at_once, lock, outer = Counter[str](), threading.Lock(), self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *args: Any) -> None:
                pass

            def do_GET(self) -> None:
                word = self.path.strip("/")
                status = 200
                if word.isdigit():
                    with lock:
                        outer.asked.append(int(word))
                        at_once[""] += 1
                        outer.most = max(outer.most, at_once[""])
                        status = fault(len(outer.asked)) if fault else 200
                    time.sleep(seconds)
                    with lock:
                        at_once[""] -= 1
                if status == -2:
                    outer.hangs.set()
                while outer.hangs.is_set():
                    time.sleep(0.05)
                if status < 0:
                    self.connection.close()
                    return
                data = b'{"word": "%s"}' % word.encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *args: None  # type: ignore[method-assign]
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.client = Client(Endpoint(url=self.url, max_retries=0, timeout_s=30), "urls")
        self.quick = Client(Endpoint(url=self.url, max_retries=0, timeout_s=0.5), "urls")
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def ping(self) -> Future[Any]:
        return begin(self.quick.send("ping", lambda reply: None))

    def bring_up(self) -> None:
        self.quick.request("up", lambda reply: None)
        self.ups += 1

    def begin(self, number: int) -> Future[Any]:
        return begin(self.client.send(str(number), lambda reply: int(reply["word"])))

    def finish(self, number: int, reply: Future[Any]) -> int:
        return reply.result()

    def close(self) -> None:
        self.hangs.clear()
        self._server.shutdown()
        self._server.server_close()


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
    fleet: Fleet[Peer] = Fleet(peers, Peer.bring_up, patience_s)
    done: list[int] = []
    fleet.renew()
    try:
        fleet.share(
            list(range(count)),
            Peer.begin,
            Peer.finish,
            lambda number, result: done.append(result) if number == result else None,
            at_once,
        )
    finally:
        fleet.close()
    assert sorted(done) == list(range(count))
    return fleet


def test_a_slow_server_does_not_hold_the_others(peers):
    slow, fast = peers(1.0), peers(0.01)
    started = time.monotonic()
    share([slow, fast])
    assert time.monotonic() - started < 5, "half of it by the slow one would take 10 s"
    assert len(slow.asked) <= 4 and len(fast.asked) >= 36
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
    fleet: Fleet[Peer] = Fleet([dead], Peer.bring_up, 1.0)
    dead.close()
    with pytest.raises(ValueError, match=r"no server has been up for 1 s; .*ConnectError") as error:
        fleet.renew()
    fleet.close()
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


def test_servers_are_renewed_while_they_work(peers):
    """What one had that is not renewed goes to the others; those that are go on with theirs."""
    stays, hangs = peers(0.1), peers(0.1)
    fleet: Fleet[Peer] = Fleet([stays, hangs], Peer.bring_up, 20.0)
    done: list[int] = []
    fleet.renew()
    sharing = threading.Thread(
        target=fleet.share,
        args=(range(40), Peer.begin, Peer.finish, lambda _, n: done.append(n), 2),
    )
    started = time.monotonic()
    sharing.start()
    time.sleep(0.3)
    fleet.renew()
    hangs.hangs.set()
    fleet.renew()
    assert fleet.up == [stays] and stays.ups == 3 and sharing.is_alive()
    sharing.join()
    fleet.close()
    assert sorted(done) == list(range(40))
    assert time.monotonic() - started < module.PING_EVERY_S, "it was not told by a ping"
