"""Weights from memory to memory, without vLLM: gloo on both sides, and servers that fail."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from torch import distributed as dist

from r1lit.endpoint.client import RequestError
from r1lit.policy import load_policy
from r1lit.rollout.hot_load import max_lora_rank, why_not
from r1lit.rollout.transfers import TRANSFERS, GlooTransfer
from r1lit.rollout.vllm_check import ServerInfo
from r1lit.rollout.vllm_server import VLLMServer

INFO = ServerInfo(
    max_model_len=64, max_num_seqs=8, dtype="float32", served="m", num_workers=1, max_lora_rank=0
)
WEIGHTS = [
    ("matrix", torch.arange(12.0).reshape(3, 4).T),
    ("half", torch.randn(5).to(torch.bfloat16)),
    ("flags", torch.tensor([True, False, True])),
    ("number", torch.tensor(7)),
]


@contextmanager
def serving(
    answers: dict[str, Callable[[dict[str, Any]], tuple[int, bytes]]], hang_s: float = 1.0
) -> Iterator[tuple[VLLMServer, list[str]]]:
    """A server that answers posts by ``answers``, or else with an empty object."""
    posted: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            path = self.path.strip("/")
            posted.append(path)
            answer = answers.get(path, lambda _: (200, b"{}"))
            self.reply(*answer(json.loads(body)))

        def do_GET(self) -> None:
            answer = answers.get(self.path.strip("/"), lambda _: (200, b""))
            self.reply(*answer({}))

        def reply(self, status: int, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    server = VLLMServer(f"http://127.0.0.1:{http.server_port}", 60.0, hang_s, "NO_KEY", "gloo")
    server.info = INFO
    try:
        yield server, posted
    finally:
        http.shutdown()
        http.server_close()


def receive(info: dict[str, Any], most: int = 99) -> list[tuple[str, torch.Tensor]]:
    """What vLLM's worker does with an update, of ``most`` tensors."""
    timeout = timedelta(seconds=info["timeout_s"])
    store = dist.TCPStore(info["host"], info["port"], info["size"], False, timeout)
    group = dist.ProcessGroupGloo(dist.PrefixStore("r1lit", store), 1, info["size"], timeout)
    got = []
    wanted = zip(info["names"], info["dtype_names"], info["shapes"], strict=True)
    for name, dtype, shape in list(wanted)[:most]:
        tensor = torch.empty(shape, dtype=getattr(torch, dtype))
        sent = tensor.reshape(-1).view(torch.uint8)
        group.broadcast([sent], dist.BroadcastOptions()).wait()
        got.append((name, tensor))
    return got


def test_gloo_broadcasts_every_dtype_and_shape(tmp_path: Path):
    got: list[tuple[str, torch.Tensor]] = []

    def update(payload: dict[str, Any]) -> tuple[int, bytes]:
        got.extend(receive(payload["update_info"]))
        return 200, b"{}"

    label = {"weight_info": lambda _: (200, b'{"weight_version": "before"}')}
    with serving({"update_weights": update} | label, hang_s=10) as (server, posted):
        send = GlooTransfer().take(iter(WEIGHTS), tmp_path)
        send(server, "run-1")
        send(server, "run-1")  # to one that comes back
    assert posted == ["start_weight_update", "update_weights", "finish_weight_update"] * 2
    assert [name for name, _ in got] == [name for name, _ in WEIGHTS] * 2
    for (_, sent), (_, arrived) in zip(WEIGHTS * 2, got, strict=True):
        assert sent.dtype == arrived.dtype
        assert torch.equal(sent, arrived)


def test_a_server_that_goes_in_the_middle_of_a_broadcast_is_no_hang(tmp_path: Path):
    def update(payload: dict[str, Any]) -> tuple[int, bytes]:
        receive(payload["update_info"], most=1)
        return 500, b"out of memory"

    label = {"weight_info": lambda _: (200, b'{"weight_version": "before"}')}
    with serving({"update_weights": update} | label, hang_s=5) as (server, posted):
        large = [(f"w{i}", torch.zeros(10**6)) for i in range(20)]
        send = GlooTransfer().take(large, tmp_path)
        with pytest.raises(RequestError):
            send(server, "run-1")
    assert posted[-1] == "finish_weight_update", "so that the next try can begin"


def test_a_server_that_hangs_is_noticed_while_it_works():
    release = threading.Event()

    def hang(_: dict[str, Any]) -> tuple[int, bytes]:
        release.wait(30)
        return 200, b"{}"

    with serving({"work": hang, "health": hang}, hang_s=0.3) as (server, _):
        with pytest.raises(RequestError):
            server.post("work")
        release.set()
    with serving({"work": lambda _: (time.sleep(1), (200, b"done"))[1]}, hang_s=0.2) as (server, _):
        assert server.post("work", beside=lambda: 7) == 7, "slow, healthy, and no JSON"


def test_a_sender_that_fails_is_an_error_of_the_request():
    def fail() -> None:
        raise RuntimeError("Connection closed by peer")

    with (
        serving({"work": lambda _: (time.sleep(0.5), (200, b"{}"))[1]}) as (server, _),
        pytest.raises(RequestError, match="RuntimeError: Connection closed by peer"),
    ):
        server.post("work", beside=fail)


@pytest.mark.parametrize("name", ["nccl", "ipc"])
def test_transfers_of_gpus_refuse_weights_elsewhere(name: str, tmp_path: Path):
    with pytest.raises(ValueError, match=f"transfer: {name} needs the policy on a GPU, .* on cpu"):
        TRANSFERS[name]().take(WEIGHTS, tmp_path)


ALL = "all-linear"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (peft.LoraConfig(r=8, target_modules=ALL), None),
        (peft.LoraConfig(r=4, target_modules=["q_proj"], use_rslora=True), None),
        (peft.LoraConfig(r=4, target_modules=ALL, use_dora=True), "use_dora"),
        (peft.LoraConfig(r=4, target_modules=ALL, bias="all"), "bias"),
        (peft.LoraConfig(r=4, target_modules=ALL, modules_to_save=["norm"]), "modules_to_save"),
        (peft.LoraConfig(r=4, target_modules=["embed_tokens", "q_proj"]), "embed_tokens"),
        (peft.LoraConfig(r=4, target_modules=["lm_head", "q_proj"]), "lm_head"),
        (peft.LoraConfig(r=600, target_modules=["q_proj"]), "rank is above 512"),
        (peft.LoHaConfig(r=4, target_modules=["q_proj"]), "LoHaConfig is not LoRA"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_which_adapters_vllm_loads(policy: Path, settings: peft.PeftConfig, reason: str | None):
    adapter = load_policy(str(policy), adapter=settings).adapter
    assert adapter is not None
    found = why_not(adapter)
    assert found is None if reason is None else reason in str(found)


def test_the_largest_rank_decides_the_servers_flag(policy: Path):
    settings = peft.LoraConfig(r=4, target_modules=ALL, rank_pattern={"q_proj": 20})
    adapter = load_policy(str(policy), adapter=settings).adapter
    assert adapter is not None
    assert max_lora_rank(adapter) == 32


def test_a_transfer_that_there_is_not_is_named(fit, tmp_path: Path):
    engine = {"class_path": "r1lit.rollout.VLLMEngine"}
    engine["init_args"] = {"urls": ["http://127.0.0.1:9"], "transfer": "pigeon"}
    with pytest.raises(ValueError, match="pigeon"):
        fit("run", {"model": {"init_args": {"engine": engine}}})
