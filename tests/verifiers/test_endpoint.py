from collections.abc import Callable

import pytest
from chat_server import Answer, ChatServer

from r1lit.verifiers.endpoint import ChatEndpoint, Reply

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


def test_a_url_up_to_the_endpoint_is_understood(serve: Serve):
    server = serve(lambda prompt, _: "fine")
    assert ChatEndpoint(f"{server.url}/chat/completions/", "m")("hi").text == "fine"


def test_text_that_no_encoding_has(serve: Serve):
    server = serve(lambda prompt, _: "fine")
    assert ChatEndpoint(server.url, "m")("a \ud800 b").text == "fine"
    assert server.requests[0]["messages"][0]["content"] == "a ? b"
