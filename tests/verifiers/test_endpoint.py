import time
from collections.abc import Callable

import pytest
from chat_server import Answer, ChatServer, cut, drip, hang, send

from r1lit.verifiers.endpoint import ChatEndpoint, EndpointError, Reply

Serve = Callable[[Callable[[str, int], Answer]], ChatServer]


def test_a_reply_with_its_tokens(serve: Serve, monkeypatch: pytest.MonkeyPatch):
    server = serve(lambda prompt, _: f"you said {prompt}")
    monkeypatch.setenv("MY_KEY", "secret")
    endpoint = ChatEndpoint(server.url, "m", api_key_env="MY_KEY", extra={"top_p": 0.5})
    assert endpoint("héllo") == Reply(text="you said héllo", prompt_tokens=50, completion_tokens=3)
    assert server.requests[0] == {
        "model": "m",
        "messages": [{"role": "user", "content": "héllo"}],
        "temperature": 0.0,
        "max_tokens": 1024,
        "top_p": 0.5,
    }
    assert server.headers[0]["Authorization"] == "Bearer secret"


@pytest.mark.parametrize(
    "failure",
    [
        (500, "broken"),
        (503, "busy"),
        (429, "slow down"),
        (200, "not json"),
        (200, '{"choices": []}'),
        (200, '{"choices": [{"message": {"content": null}}]}'),
        (200, "[" * 100_000),
        (200, "7"),
        cut,
        lambda handler: handler.connection.close(),
    ],
)
def test_passing_failures_are_tried_again(serve: Serve, failure: Answer):
    server = serve(lambda prompt, before: failure if before < 2 else "fine")
    endpoint = ChatEndpoint(server.url, "m", retries=2, backoff_s=0.01)
    assert endpoint("hi").text == "fine"
    assert len(server.requests) == 3


def test_the_wait_doubles_and_retry_after_is_kept_to(serve: Serve, monkeypatch):
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    server = serve(
        lambda prompt, before: (
            (503, "") if before < 3 else lambda handler: send(handler, 429, "", Retry_After="7")
        )
    )
    with pytest.raises(EndpointError, match="status 429"):
        ChatEndpoint(server.url, "m", retries=4, backoff_s=8)("hi")
    assert len(waits) == 4 and waits[3] == 7.0
    assert 4 <= waits[0] <= 12 and 8 <= waits[1] <= 24 and 16 <= waits[2] <= 48


def test_a_failure_that_stays_is_told(serve: Serve):
    server = serve(lambda prompt, _: (500, "out of memory"))
    with pytest.raises(EndpointError, match="status 500: out of memory") as caught:
        ChatEndpoint(server.url, "m", retries=1, backoff_s=0.01)("hi")
    assert not caught.value.timed_out and len(server.requests) == 2


def test_a_refused_request_is_not_sent_again(serve: Serve):
    server = serve(lambda prompt, _: (400, "too long"))
    with pytest.raises(EndpointError, match="status 400: too long"):
        ChatEndpoint(server.url, "m", backoff_s=0.01)("hi")
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_wrong_key_or_model_is_an_error_of_the_user(serve: Serve, status: int):
    server = serve(lambda prompt, _: (status, "no"))
    with pytest.raises(ValueError, match=f"answers {status} to model 'm': no"):
        ChatEndpoint(server.url, "m", backoff_s=0.01)("hi")
    assert len(server.requests) == 1


def test_nobody_there():
    endpoint = ChatEndpoint("http://127.0.0.1:9/v1", "m", retries=1, backoff_s=0.01)
    with pytest.raises(EndpointError, match="ConnectionRefusedError"):
        endpoint("hi")


@pytest.mark.parametrize("slow", [hang(3), drip(3)])
def test_the_time_limit_is_wall_clock(serve: Serve, slow: Answer):
    server = serve(lambda prompt, _: slow)
    endpoint = ChatEndpoint(server.url, "m", timeout_s=0.4, retries=0)
    start = time.monotonic()
    with pytest.raises(EndpointError, match=r"no reply in 0.4 s") as caught:
        endpoint("hi")
    assert caught.value.timed_out
    assert time.monotonic() - start < 2.5


def test_text_that_no_encoding_has(serve: Serve):
    server = serve(lambda prompt, _: "fine")
    assert ChatEndpoint(server.url, "m")("a \ud800 b").text == "fine"
    assert server.requests[0]["messages"][0]["content"] == "a ? b"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": "localhost:8000"}, "url: 'localhost:8000' is not like http"),
        ({"timeout_s": 0}, "timeout_s: 0 must be positive"),
        ({"retries": -1}, "retries: -1 not negative"),
    ],
)
def test_wrong_settings_are_named(options: dict, message: str):
    with pytest.raises(ValueError, match=message):
        ChatEndpoint(**{"url": "http://localhost:8000/v1", "model": "m", **options})
