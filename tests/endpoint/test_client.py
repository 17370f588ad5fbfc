"""The HTTP client against a real local server that fails in every way it can."""

from __future__ import annotations

import json
import multiprocessing
import pickle
import socket
import threading
import time
import warnings
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from http_server import ChatServer, cut, drip, hang, send

from r1lit.endpoint import client as client_module
from r1lit.endpoint.client import (
    Client,
    Endpoint,
    MalformedReply,
    PermanentError,
    RequestError,
    SetupError,
    in_parallel,
    only_choice,
    token_count,
)

Serve = Callable[..., ChatServer]
KEY = "sk-0123456789abcdef"


def client(url: str, **options: Any) -> Client:
    return Client(Endpoint(url=url, **options))


def client_of(server: ChatServer, **options: Any) -> Client:
    return client(server.base_url, **{"timeout_s": 10.0, "backoff_s": 0.01, **options})


def text_of(reply: dict[str, Any]) -> str:
    content = only_choice(reply)["message"]["content"]
    if not isinstance(content, str):
        raise MalformedReply("no text")
    return content


def ask(client: Client, prompt: str = "hi", stop: Any = None) -> str:
    return client.request("chat/completions", text_of, {"messages": [{"content": prompt}]}, stop)


class Pauses(threading.Event):
    """A stop that is never set, and takes no time to wait for."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.seconds.append(timeout)
        return False


@pytest.mark.parametrize(
    "failure",
    [
        (500, "broken"),
        (503, "busy"),
        (429, "slow down"),
        (408, ""),
        (409, ""),
        (425, ""),
        (200, "not json"),
        (200, '{"choices": []}'),
        (200, '{"choices": [{"message": {"content": null}}]}'),
        (200, "[" * 100_000),
        (200, "7"),
        cut,
        lambda handler: handler.connection.close(),
    ],
)
def test_passing_failures_are_tried_again(serve: Serve, failure: Any):
    server = serve(lambda prompt, before: failure if before < 2 else "fine")
    assert ask(client_of(server, max_retries=2)) == "fine"
    assert len(server.bodies) == 3


def test_pauses_double_and_retry_after_is_kept_to(serve: Serve):
    def answer(prompt: str, before: int) -> Any:
        if before < 3:
            return 503, ""
        after = "7" if before == 3 else "9" * 400
        return lambda handler: send(handler, 429, "", Retry_After=after)

    pauses = Pauses()
    with pytest.raises(RequestError, match="in 6 tries; the last time, status 429: Too Many"):
        ask(client_of(serve(answer), max_retries=5, backoff_s=8), stop=pauses)
    assert pauses.seconds[3:] == [7.0, 60.0]
    first, second, third = pauses.seconds[:3]
    assert 4 <= first <= 12 and 8 <= second <= 24 and 16 <= third <= 48


@pytest.mark.parametrize(("num_failures", "num_warnings"), [(1, 0), (3, 1)])
def test_a_wait_is_warned_of_once(serve: Serve, num_failures: int, num_warnings: int):
    server = serve(
        lambda prompt, _: (503, "busy") if len(server.bodies) <= num_failures else "fine"
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert ask(client_of(server, max_retries=5)) == "fine"
    said = [str(warning.message) for warning in caught]
    assert len(said) == num_warnings
    assert all("gave no answer twice, status 503: busy; tries left: 4" in s for s in said)


def test_each_retry_after_the_first_is_printed_and_not_by_all_requests(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
):
    server = serve(lambda prompt, _: (503, "busy") if len(server.bodies) <= 4 else "fine")
    for silent_s, num_lines in ((0.0, 3), (60.0, 1)):
        server.bodies.clear()
        monkeypatch.setattr("r1lit.endpoint.client.SILENT_S", silent_s)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert ask(client_of(server, max_retries=5)) == "fine"
        said = [str(warning.message) for warning in caught]
        assert len(said) == num_lines
        assert "tries left: 4, the next in 0 s" in said[0]
        assert all("4 times, status 503: busy; tries left: 2" in s for s in said[2:])


def test_a_server_that_answered_once_is_waited_for(serve: Serve):
    """Where nothing ever listened, the first refused connection is an error."""
    server = serve(lambda prompt, _: "fine")
    client = client_of(server, max_retries=1)
    assert ask(client) == "fine"
    server.close()
    with pytest.raises(RequestError, match="in 2 tries; the last time, ConnectError") as caught:
        ask(client)
    assert not isinstance(caught.value, PermanentError)
    with pytest.raises(SetupError, match=r"gave no answer, ConnectError.*; start the server"):
        ask(client_of(server, max_retries=6))


def test_a_failure_that_stays_is_told(serve: Serve):
    server = serve(lambda prompt, _: (500, "out of\nmemory"))
    with pytest.raises(RequestError, match="status 500: out of memory") as caught:
        ask(client_of(server, max_retries=1))
    assert not caught.value.timed_out and not isinstance(caught.value, PermanentError)
    assert len(server.bodies) == 2


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 413, 422])
def test_a_refused_request_is_not_sent_again(serve: Serve, status: int):
    server = serve(lambda prompt, _: (status, "no"))
    with pytest.raises(PermanentError, match=f"refused the request, status {status}: no") as caught:
        ask(client_of(server))
    assert isinstance(caught.value, SetupError) == (status in (401, 403, 404, 405))
    assert len(server.bodies) == 1


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirects_are_not_followed(serve: Serve, status: int):
    other = serve(lambda prompt, _: "fine")
    to = f"{other.base_url}/chat/completions"
    server = serve(lambda prompt, _: lambda handler: send(handler, status, "", Location=to))
    with pytest.raises(SetupError, match=f"status {status}"):
        ask(client_of(server))
    assert len(server.bodies) == 1 and not other.bodies


def test_proxies_of_the_environment_are_not_used(serve: Serve, monkeypatch: pytest.MonkeyPatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert ask(client_of(serve(lambda prompt, _: "fine"))) == "fine"


def test_nobody_there():
    with pytest.raises(SetupError, match=r"127\.0\.0\.1:9/v1/.* gave no answer, ConnectError"):
        ask(client("http://127.0.0.1:9/v1", max_retries=6, backoff_s=60.0))


def drip_headers(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"HTTP/1.0 200 OK\r\n")
    for n in range(600):
        handler.wfile.write(f"X-{n}: 1\r\n".encode())
        time.sleep(0.05)


@pytest.mark.parametrize("slow", [hang(30), drip(30), drip_headers])
def test_the_time_limit_is_wall_clock(serve: Serve, slow: Any):
    server = serve(lambda prompt, _: slow)
    start = time.monotonic()
    with pytest.raises(RequestError, match=r"no reply in 0.4 s") as caught:
        ask(client_of(server, timeout_s=0.4, max_retries=0))
    assert caught.value.timed_out
    assert time.monotonic() - start < 15


def test_an_address_that_takes_connections_and_no_more():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        with pytest.raises(RequestError, match="no reply") as caught:
            ask(client(url, timeout_s=0.3, max_retries=0))
    assert caught.value.timed_out


@pytest.mark.parametrize("encoding", ["identity", "gzip, gzip"])
def test_a_long_reply_is_cut_off(serve: Serve, monkeypatch: pytest.MonkeyPatch, encoding: str):
    monkeypatch.setattr(client_module, "MAX_BYTES", 1000)
    server = serve(lambda prompt, _: lambda h: send(h, 200, " " * 2000, Content_Encoding=encoding))
    with pytest.raises(MalformedReply, match="longer than 1,000 bytes"):
        ask(client_of(server, max_retries=0))


def test_stop_ends_the_tries(serve: Serve):
    stop = threading.Event()

    def busy(prompt: str, _: int) -> tuple[int, str]:
        threading.Timer(0.3, stop.set).start()
        return 503, "busy"

    server = serve(busy)
    with pytest.raises(RequestError, match="in 1 tries"):
        ask(client_of(server, backoff_s=30), stop=stop)
    assert len(server.bodies) == 1


def test_connections_are_kept_and_shared_by_threads(serve: Serve):
    server = serve(lambda prompt, _: prompt, keep_alive=True)
    client = client_of(server)
    prompts = [str(n) for n in range(60)]
    assert in_parallel(lambda prompt, _: ask(client, prompt), prompts, 4) == prompts
    assert len(server.bodies) == 60 and server.num_connections <= 4


def test_a_connection_that_the_server_closed_meanwhile_is_made_anew(serve: Serve):
    def answer(prompt: str, before: int) -> Any:
        def reply_and_hang_up(handler: BaseHTTPRequestHandler) -> None:
            send(handler, 200, json.dumps({"choices": [{"message": {"content": "fine"}}]}))
            handler.close_connection = True

        return reply_and_hang_up

    server = serve(answer, keep_alive=True)
    client = client_of(server)
    assert [ask(client) for _ in range(5)] == ["fine"] * 5


def test_a_client_goes_through_pickle_and_fork(serve: Serve):
    client = client_of(serve(lambda prompt, _: "fine", keep_alive=True))
    assert ask(client) == "fine"
    assert ask(pickle.loads(pickle.dumps(client))) == "fine"
    child = multiprocessing.get_context("fork").Process(target=ask, args=(client,))
    child.start()
    child.join(20)
    assert child.exitcode == 0
    assert ask(client) == "fine"


def test_a_server_whose_every_reply_is_malformed_is_refused(serve: Serve):
    """Eight requests, three tries each; one good reply, and every later one costs itself alone."""
    server = serve(lambda prompt, _: "fine" if prompt == "good" else (200, "{}"))
    client = client_of(server, max_retries=6)
    for _ in range(7):
        with pytest.raises(MalformedReply, match=r"in 3 tries; .*KeyError: 'choices'"):
            ask(client)
    with pytest.raises(SetupError, match="no reply of this server could be read so far"):
        ask(client)
    assert len(server.bodies) == 24
    assert ask(client, "good") == "fine"
    with pytest.raises(MalformedReply):
        ask(client)


def escaped(text: str) -> str:
    return "".join(f"\\u{ord(c):04x}" for c in text)


@pytest.mark.parametrize(
    "answer",
    [
        (200, json.dumps({"choices": [{"message": {"content": f"your key is {KEY}!"}}]})),
        (200, f'{{"choices": [{{"message": {{"content": "your key is {escaped(KEY)}!"}}}}]}}'),
        (200, f'{{"{KEY}": 1}}'),
        (200, f"<html>{KEY}"),
        (200, f'["{KEY}"]'),
        (200, f'{{"choices": ["{KEY}", "{KEY}"]}}'),
        (200, f'{{"choices": [{{"message": {{"{escaped(KEY)}": "{escaped(KEY)}"}}}}]}}'),
        (401, f"Incorrect API key provided: {KEY}"),
        (400, f'{{"error": "bad key {escaped(KEY)}"}}'),
        (200, f'{{"error": "bad key {escaped(KEY)}"}}'),
        (400, "/v1?key=" + "".join(f"%{ord(c):02X}" for c in KEY)),
        (400, KEY.upper()),
        (400, "x" * 490 + KEY),  # where a message is cut
        (500, f'{{"error": "{KEY}"}}'),
        lambda handler: handler.wfile.write(f"HTTP/1.1 {KEY}\r\n\r\n".encode()),
        lambda handler: handler.wfile.write(f"HTTP/1.1 200 OK\r\n{KEY}\r\n\r\n".encode()),
    ],
)
def test_an_echoed_key_is_replaced(serve: Serve, monkeypatch: pytest.MonkeyPatch, answer: Any):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    server = serve(lambda prompt, _: answer)
    try:
        said = ask(client_of(server, max_retries=0))
        assert said == "your key is [API key]!"
    except RequestError as error:
        chain: BaseException | None = error
        said = ""
        while chain is not None:
            said += f"{chain!r} {chain}"
            chain = chain.__cause__
    for form in (KEY[:10], escaped(KEY[:10]), KEY[:10].upper(), f"%{ord(KEY[0]):02X}%"):
        assert form not in said
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"


def test_a_key_that_is_no_secret_replaces_nothing(serve: Serve, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "EMPTY")
    assert ask(client_of(serve(lambda prompt, _: "EMPTY\n"))) == "EMPTY\n"


def test_a_key_that_no_header_may_hold_is_not_shown(serve: Serve, monkeypatch: pytest.MonkeyPatch):
    server = serve(lambda prompt, _: "fine")
    monkeypatch.setenv("OPENAI_API_KEY", f"{KEY}\n")  # the end of a file
    assert ask(client_of(server)) == "fine"
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"
    monkeypatch.setenv("OPENAI_API_KEY", f"{KEY}\n{KEY}")
    with pytest.raises(SetupError, match="api_key_env: OPENAI_API_KEY has characters") as caught:
        ask(client_of(server))
    assert KEY not in str(caught.value)


def test_lone_surrogates_are_replaced(serve: Serve):
    body = '{"choices": [{"message": {"content": "a \\ud800 b \\ud83d\\ude00"}}]}'
    assert ask(client_of(serve(lambda prompt, _: (200, body)))) == "a \ufffd b 😀"


@pytest.mark.parametrize(
    ("usage", "count"),
    [
        ({"n": 7}, 7),
        ({"n": 0}, 0),
        ({"n": "7"}, None),
        ({"n": True}, None),
        ({"n": 7.0}, None),
        ({"n": -1}, None),
        ({"n": 10**400}, None),
        ({}, None),
        ([7], None),
        ("n", None),
        (None, None),
    ],
)
def test_counts_that_cannot_be_true_are_none(usage: Any, count: int | None):
    assert token_count({"usage": usage}, "n") == count


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": "localhost:8000"}, "url: 'localhost:8000' is not like http"),
        ({"url": "ftp://x/v1"}, "url: 'ftp://x/v1' is not like http"),
        ({"url": "http:///v1"}, "url: 'http:///v1' is not like http"),
        ({"url": "http://x:99999/v1"}, "url: 'http://x:99999/v1' is not like http"),
        ({"url": "http://x:y/v1"}, "url: 'http://x:y/v1' is not a URL"),
        ({"url": "http://me:secret@x/v1"}, "url: it holds a password"),
        ({"timeout_s": 0}, "timeout_s: 0 is not above 0"),
        ({"max_retries": -1}, "max_retries: -1 is not at least 0; 0 sends"),
        ({"backoff_s": -1.0}, "backoff_s: -1"),
    ],
)
def test_wrong_settings_are_named(options: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message) as caught:
        Endpoint(**{"url": "http://localhost:8000/v1", **options})
    assert "secret" not in str(caught.value)


def test_the_first_failure_stops_what_runs_beside_it():
    begun: list[int] = []
    running = threading.Barrier(2, timeout=10)

    def work(item: int, stop: threading.Event) -> int:
        begun.append(item)
        if item < 2:  # a third may begin before the failure is seen
            running.wait()
        if item == 0:
            raise RuntimeError("full")
        assert stop.wait(10)
        return item

    with pytest.raises(RuntimeError, match="full"):
        in_parallel(work, range(50), 2)
    assert sorted(begun)[:2] == [0, 1] and len(begun) <= 3
