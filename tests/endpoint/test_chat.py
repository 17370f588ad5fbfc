"""A chat model behind an endpoint."""

from __future__ import annotations

import pytest

from r1lit.endpoint import ChatReply, Endpoint, ServedModel
from r1lit.endpoint.client import SetupError


def model_of(server, path: str = "", **options) -> ServedModel:
    return ServedModel("m", Endpoint(url=server.base_url + path, **options))


def test_a_reply_with_its_tokens(serve, monkeypatch: pytest.MonkeyPatch):
    server = serve(lambda prompt, _: f"you said {prompt}")
    monkeypatch.setenv("MY_KEY", "secret")
    endpoint = Endpoint(url=server.base_url, api_key_env="MY_KEY")
    model = ServedModel("m", endpoint, extra={"top_p": 0.5})
    assert model("héllo") == ChatReply(text="you said héllo", prompt_tokens=50, completion_tokens=3)
    assert server.bodies[0] == {
        "model": "m",
        "messages": [{"role": "user", "content": "héllo"}],
        "temperature": 0.0,
        "max_tokens": 1024,
        "top_p": 0.5,
    }
    assert server.headers[0]["Authorization"] == "Bearer secret"


def test_a_url_up_to_the_endpoint_is_understood(serve):
    server = serve(lambda prompt, _: "fine")
    assert model_of(server, "/chat/completions/")("hi").text == "fine"


def test_text_that_no_encoding_has(serve):
    server = serve(lambda prompt, _: "fine")
    assert model_of(server)("a \ud800 b").text == "fine"
    assert server.bodies[0]["messages"][0]["content"] == "a ? b"


def answering_as(name: str):
    """A reply that says which model it is of."""
    message = {"role": "assistant", "content": "fine"}
    return {"model": name, "choices": [{"message": message, "finish_reason": "stop"}]}


def test_a_server_that_answers_as_another_model_is_an_error(serve):
    server = serve(lambda *_: answering_as("other-7b"))
    model = model_of(server, max_retries=3)
    words = r"asked for the model 'm' and answered as 'other-7b'; name the model as the server does"
    for call in (lambda: model("hi"), lambda: model.probabilities("hi", ["a"])):
        with pytest.raises(SetupError, match=words) as error:
            call()
        assert "\n" not in str(error.value)
    assert len(server.bodies) == 2, "no try after the first"
    own = serve(lambda *_: answering_as("other-7b@main"))
    assert ServedModel("org/Other-7B", Endpoint(url=own.base_url))("hi").text == "fine"
