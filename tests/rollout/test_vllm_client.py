"""The client of a vLLM server: what it reads and does not take, and servers that hang or fail."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from http_server import HTTPServer, Received

from r1lit.endpoint.client import Endpoint, MalformedReply, RequestError, run
from r1lit.rollout.vllm.client import (
    ServerInfo,
    VLLMClient,
    Weights,
    WeightsRefused,
    read_completion,
)

INFO = ServerInfo(
    max_model_len=64, max_num_seqs=8, dtype="float32", served="m", num_workers=1, max_lora_rank=0
)
VERSIONS = {"run-2": 2, "run-4": 4}
CHOICE: dict[str, Any] = {
    "index": 0,
    "finish_reason": "stop",
    "token_ids": [7, 8, 9, 2],
    "logprobs": {"content": [{"token_id": t, "logprob": -t / 10} for t in (7, 8, 9, 2)]},
    "weight_versions": [
        {"version": "run-2", "start": 0, "end": 3},
        {"version": "run-4", "start": 3, "end": 4},
    ],
}


@contextmanager
def serving(
    answers: dict[str, Callable[[dict[str, Any]], Any]], hang_s: float = 1.0
) -> Iterator[tuple[VLLMClient, list[str]]]:
    """A server that answers by ``answers``, or else with an empty object."""
    posted: list[str] = []

    def answer(request: Received) -> Any:
        path = request.path.strip("/")
        if request.method == "POST":
            posted.append(path)
        return answers.get(path, lambda _: {})(request.body or {})

    http = HTTPServer(answer)
    client = VLLMClient(Endpoint(url=http.url, timeout_s=60.0, max_retries=0), hang_s, "gloo")
    client.info = INFO
    try:
        yield client, posted
    finally:
        http.close()


def test_each_token_has_the_version_that_drew_it():
    completion = read_completion(CHOICE, VERSIONS)
    assert completion.versions_T().tolist() == [2, 2, 2, 4] and completion.version == 2
    assert completion.logps.tolist() == pytest.approx([-0.7, -0.8, -0.9, -0.2])
    choice = CHOICE | {"weight_versions": [{"version": "run-4", "start": 0, "end": 4}]}
    completion = read_completion(choice, VERSIONS)
    assert completion.versions_T().tolist() == [4] * 4 and completion.version == 4


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"finish_reason": "abort"}, "ended by 'abort'"),
        ({"weight_versions": []}, "it was restarted"),
        ({"weight_versions": [{"version": "default", "start": 0, "end": 4}]}, "'default'"),
        ({"weight_versions": [*CHOICE["weight_versions"], CHOICE["weight_versions"][1]]}, "of 5"),
        ({"token_ids": [7, 8, 9, 3]}, "not those of its tokens"),
    ],
)
def test_a_reply_that_is_not_whole_or_of_other_weights(change: dict[str, Any], told: str):
    with pytest.raises(MalformedReply, match=told):
        read_completion(copy.deepcopy(CHOICE) | change, VERSIONS)


def test_a_server_that_slept_gets_weights_before_its_cache():
    async def send(server: VLLMClient, label: str) -> None:
        await server.post("weights")

    answers = {"reset_prefix_cache": lambda _: {"success": True}}
    with serving(answers) as (server, posted):
        newest = Weights(version=1, label="r-1", expected_T=None, send=send, versions={"r-1": 1})
        run(server.wake())
        assert posted == []
        run(server.sleep())
        run(server.load(newest))
        run(server.load(newest))
        run(server.sleep())
        run(server.wake())
    before, between = ["wake_up?tags=weights"], ["wake_up?tags=kv_cache"]
    loads = [["pause?mode=abort", "weights"], ["reset_prefix_cache", "resume"]]
    slept = ["sleep?level=1&mode=abort"]
    first = [*before, *loads[0], *between, *loads[1]]
    assert posted == [*slept, *first, *loads[0], *loads[1], *slept, "wake_up"]


def test_weights_that_are_refused_are_not_there_whatever_the_label_says():
    label, refused = "run-0", True

    async def send(server: VLLMClient, new: str) -> None:
        nonlocal label
        label = new
        if refused:
            raise MalformedReply("of its 3 tensors 1 differ")

    answers: dict[str, Callable[[dict[str, Any]], Any]] = {
        "weight_info": lambda _: {"weight_version": label},
        "reset_prefix_cache": lambda _: {"success": True},
    }
    newest = Weights(version=1, label="run-1", expected_T=None, send=send, versions={"run-1": 1})
    with serving(answers) as (server, posted):
        assert not server.is_loading
        with pytest.raises(WeightsRefused, match="in 3 tries: of its 3 tensors"):
            run(server.load(newest))
        assert run(server.label()) == "run-1" and server.is_loading
        assert "resume" not in posted
        refused = False
        run(server.load(newest))
        assert not server.is_loading and posted[-1] == "resume"


def test_a_server_that_hangs_is_noticed_while_it_works():
    release = threading.Event()

    def hang(_: dict[str, Any]) -> Any:
        release.wait(30)
        return {}

    with serving({"work": hang, "health": hang}, hang_s=0.3) as (server, _):
        with pytest.raises(RequestError):
            run(server.post("work"))
        release.set()
    with serving({"work": lambda _: (time.sleep(1), (200, "done"))[1]}, hang_s=0.2) as (server, _):
        assert run(server.post("work", meanwhile=lambda: 7)) == 7, "slow, healthy, and no JSON"


def test_a_sender_that_fails_is_an_error_of_the_request():
    def fail() -> None:
        raise RuntimeError("Connection closed by peer")

    with (
        serving({"work": lambda _: (time.sleep(0.5), {})[1]}) as (server, _),
        pytest.raises(RequestError, match="RuntimeError: Connection closed by peer"),
    ):
        run(server.post("work", meanwhile=fail))
