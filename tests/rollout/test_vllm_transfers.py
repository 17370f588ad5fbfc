"""Weights and adapters from memory and folder into real vLLM servers."""

from __future__ import annotations

import base64
import json
import pickle
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from real_vllm import MINI, VLLM, WORKER, RealServer, needs_vllm
from test_vllm import engine_of, largest_difference, move, requests, sync, wait_until_up
from test_vllm_client import INFO
from test_vllm_weights import WEIGHTS

from r1lit.endpoint.client import Endpoint, MalformedReply, run
from r1lit.policy import ModelSource, load_policy, load_tokenizer
from r1lit.rollout.vllm import weights as transfers
from r1lit.rollout.vllm.client import VLLMClient
from r1lit.rollout.vllm.weights import NCCLTransfer, described

pytestmark = [pytest.mark.slow, needs_vllm, pytest.mark.timeout(900)]
GLOO = {"--weight-transfer-config": '{"backend": "gloo"}'}
LORA = {"--enable-lora": "", "--max-lora-rank": 8}
RUNTIME = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}
TWO = {"--tensor-parallel-size": 2}
LORA_SERVERS = {
    "one worker": LORA,
    "two workers": LORA | TWO,
    "two, fully sharded": LORA | TWO | {"--fully-sharded-loras": ""},
}
ONE_WORKER = pytest.mark.parametrize("lora_server", ["one worker"], indirect=True)


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(str(MINI))


@pytest.fixture
def policy():
    return load_policy(ModelSource(str(MINI), dtype="float32", attention="sdpa"))


@pytest.fixture(scope="module")
def gloo_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RealServer]]:
    folder = tmp_path_factory.mktemp("gloo")
    started = [RealServer(folder / f"{name}.log", GLOO).start() for name in "ab"]
    yield started
    for server in started:
        server.kill()


def test_gloo_hands_weights_to_all_servers(gloo_servers, policy, tokenizer):
    engine = engine_of(gloo_servers, policy, tokenizer, transfer="gloo")
    asked = requests(tokenizer, prompts=8)
    sync(engine, policy)
    assert largest_difference(policy, asked, engine.generate(asked)) < 1e-4
    move(policy)
    sync(engine, policy, version=4)
    new = engine.generate(asked)
    assert {c.version for c in new} == {4}
    assert largest_difference(policy, asked, new) < 1e-4
    assert not [path for path in engine._folder.iterdir() if path.is_dir()], "nothing on the disk"


def test_a_server_that_is_killed_while_it_receives(gloo_servers, policy, tokenizer, monkeypatch):
    engine = engine_of(gloo_servers, policy, tokenizer, transfer="gloo", hang_s=10)
    sync(engine, policy)
    move(policy)
    sent = 0

    def kill_later(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal sent
        sent += 1
        if sent == 20:
            gloo_servers[0].kill()
            gloo_servers[0].start(wait=False)
        return real(tensor)

    real = transfers.as_bytes
    monkeypatch.setattr(transfers, "as_bytes", kill_later)
    sync(engine, policy, version=1)
    assert sent > 20
    asked = requests(tokenizer, prompts=8)
    assert largest_difference(policy, asked, engine.generate(asked)) < 1e-4
    wait_until_up(engine, 2)
    assert largest_difference(policy, asked, engine.generate(asked)) < 1e-4


def test_weights_are_not_read_while_they_change(gloo_servers, policy, tokenizer):
    engine = engine_of(gloo_servers, policy, tokenizer, transfer="gloo", hang_s=10)
    sync(engine, policy)
    asked = requests(tokenizer, prompts=8)

    def finished(*_: Any) -> None:
        if gloo_servers[1].answers():
            gloo_servers[1].kill()

    with pytest.warns(UserWarning, match="is left out until it is back"):
        engine.generate(requests(tokenizer, prompts=24, tokens=200), finished)
    gloo_servers[1].start()  # is back, and asks for weights, while the policy is trained
    for _ in range(20):
        move(policy, size=0.001)
    sync(engine, policy, version=1)
    wait_until_up(engine, 2)
    assert largest_difference(policy, asked, engine.generate(asked)) < 1e-4


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    server = RealServer(tmp_path_factory.mktemp("two") / "vllm.log", GLOO | TWO).start()
    yield server
    server.kill()


NAMES = (
    *("model.embed_tokens.weight", "model.norm.weight", "model.layers.1.self_attn.v_proj.weight"),
    *("model.layers.2.mlp.gate_proj.weight", "model.layers.3.mlp.down_proj.weight"),
)


def test_the_parts_of_two_workers_add_up_to_each_weight(two_workers, policy, tokenizer):
    engine = engine_of([two_workers], policy, tokenizer, transfer="gloo")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*digest.*")  # every tensor is read
        sync(engine, policy)
    asked = requests(tokenizer, prompts=2)
    assert largest_difference(policy, asked, engine.generate(asked)) < 1e-4
    move(policy)
    for name in NAMES:
        for place in (3, -3):  # of one worker, and of the other
            stale = {key: tensor.clone() for key, tensor in policy.model.state_dict().items()}
            with torch.no_grad():
                element = policy.model.state_dict()[name].view(-1)[place]
                element.copy_(torch.nextafter(element, element + 1))
            with pytest.raises(ValueError, match=f"such as .*{name[-9:]}: they are stale"):
                engine.update_weights(stale.items(), 1)
    sync(engine, policy, version=2)
    assert largest_difference(policy, asked, engine.generate(asked)) < 1e-4


@pytest.fixture(scope="module", params=LORA_SERVERS)
def lora_server(request, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    log = tmp_path_factory.mktemp("lora") / "vllm.log"
    options = LORA_SERVERS[request.param] | {"--worker-extension-cls": "spoilt_worker.Extension"}
    found = {"PYTHONPATH": f"{WORKER}:{Path(__file__).parent}"}
    server = RealServer(log, options, environment=RUNTIME | found).start()
    server.kind = request.param
    yield server
    server.kill()


def adapted(settings: peft.PeftConfig):
    return load_policy(ModelSource(str(MINI), dtype="float32", attention="sdpa", adapter=settings))


def nudge(policy, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in policy.adapter.weights:
            weight += 0.05 * torch.randn(weight.shape, generator=generator)


def test_an_adapter_alone_is_handed_over(lora_server, tokenizer):
    policy = adapted(peft.LoraConfig(r=4, target_modules="all-linear", lora_alpha=16))
    engine = engine_of([lora_server], policy, tokenizer)
    asked = requests(tokenizer, prompts=8)
    engine.update_weights(policy.named_weights(), 0)
    old = engine.generate(asked)
    assert largest_difference(policy, asked, old) < 1e-4
    for version in (1, 2):
        nudge(policy, seed=version)
        assert largest_difference(policy, asked, old) > 0.01
        engine.update_weights(policy.named_weights(), version)
        new = engine.generate(asked)  # the same prompts: nothing of the last version is cached
        assert {c.version for c in new} == {version}
        assert largest_difference(policy, asked, new) < 1e-4
    names = [path.name for path in engine._folder.iterdir() if path.is_dir()]
    assert names == [f"{engine._run}-2"]
    files = {path.name for path in (engine._folder / names[0]).iterdir()}
    assert files == {"adapter_config.json", "adapter_model.safetensors"}


def test_every_tensor_of_an_adapter_has_a_receipt(lora_server, tokenizer):
    policy = adapted(
        peft.LoraConfig(r=6, lora_alpha=7, target_modules="all-linear", use_rslora=True)
    )
    nudge(policy, seed=1)
    engine = engine_of([lora_server], policy, tokenizer)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*digest.*")  # every tensor is read
        engine.update_weights(policy.named_weights(), 0)
    before = policy.adapter.gather()
    stale = {name: tensor.clone() for name, tensor in before.items()}
    real = policy.adapter.gather
    for number, name in enumerate(list(stale)[::9]):  # the smallest update there is
        place = -7 if number % 2 else 7  # of one of two workers, and of the other
        element = policy.adapter.peft.state_dict()[name].view(-1)[place]
        short = name.replace(".default", "")
        scale = policy.adapter.scale_of(short) if "lora_B" in name else 1
        held = element * scale
        while element * scale == held:
            element.copy_(torch.nextafter(element, element + 1))
        engine._sender._adapter = Other(policy.adapter, stale)
        with pytest.raises(ValueError, match=f"tensors 1 differ .* as {short}: all are those"):
            engine.update_weights(policy.named_weights(), 1)
        engine._sender._adapter = policy.adapter
        engine.update_weights(policy.named_weights(), 2)
        stale = {key: tensor.clone() for key, tensor in real().items()}


class Other:
    """Writes other weights, or settings, than the adapter's."""

    def __init__(self, adapter: Any, weights: Any = None, **settings: Any) -> None:
        self._adapter, self._weights, self._settings = adapter, weights, settings

    def gather(self) -> Any:
        return self._weights or self._adapter.gather()

    def save_weights(self, folder: Path, weights: Any) -> None:
        self._adapter.save_weights(folder, weights)
        config = folder / "adapter_config.json"
        config.write_text(json.dumps(json.loads(config.read_text()) | self._settings))


def half(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The adapter with the upper layers' tensors as they were at the start."""
    return {n: x * 0 if ".layers.2." in n and "lora_B" in n else x for n, x in weights.items()}


@pytest.mark.parametrize("fault", ["stale", "half", "scale", "root", "more"])
def test_a_wrong_adapter_is_named(lora_server, tokenizer, fault):
    policy = adapted(peft.LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "down_proj"]))
    nudge(policy, seed=1)
    engine = engine_of([lora_server], policy, tokenizer, tolerance=float("inf"))
    engine.update_weights(policy.named_weights(), 0)
    old = {name: tensor.clone() for name, tensor in policy.adapter.gather().items()}
    nudge(policy, seed=2)
    if fault == "more":
        other = adapted(peft.LoraConfig(r=4, lora_alpha=8, target_modules="all-linear"))
        nudge(other, seed=3)
        given: Any = other.adapter
    else:
        own = {"stale": old, "half": half(policy.adapter.gather())}.get(fault)
        settings = {"scale": {"lora_alpha": 10}, "root": {"use_rslora": True}}.get(fault, {})
        given = Other(policy.adapter, own, **settings)
    engine._sender._adapter = given
    told = {
        "stale": "all are those of the version before: it is stale",
        "half": r"layers\.2\..*lora_B.*: it is there in part",
        "scale": "lora_B.*: of each layer B differs and A does not: its scale",
        "root": r"lora_B.*: they are the policy's at another scale, alpha / sqrt\(rank\)",
        "more": "it holds more than the policy's",
    }
    with pytest.raises(ValueError, match=told[fault]):
        engine.update_weights(policy.named_weights(), 1)
    engine._sender._adapter = policy.adapter
    engine.update_weights(policy.named_weights(), 2)
    asked = requests(tokenizer)
    assert largest_difference(policy, asked, engine.generate(asked)) < 1e-4


def test_a_fault_in_one_worker_alone_is_named(lora_server, tokenizer):
    policy = adapted(peft.LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "down_proj"]))
    nudge(policy, seed=1)
    engine = engine_of([lora_server], policy, tokenizer)
    engine.update_weights(policy.named_weights(), 0)
    [server], receipt = engine._servers, engine._newest.receipt
    run(server.compare(receipt))
    assert server.info.num_workers == (1 if "one worker" in lora_server.kind else 2)
    of_q, of_down = (f"model.layers.2.{name}" for name in ("self_attn.qkv_proj", "mlp.down_proj"))
    faults = [
        (of_q, "b", False, "model.layers.2.self_attn.q_proj.lora_B"),
        (of_down, "a", False, "model.layers.2.mlp.down_proj.lora_A"),
        (of_down, "b", False, "model.layers.2.mlp.down_proj.lora_B"),
        (of_q, "a", True, f"{of_q}: it holds more"),  # where that worker has none of A, if sharded
    ]
    for version, (layer, matrix, beyond, told) in enumerate(faults, start=1):
        payload = {"rank": server.info.num_workers - 1, "layer": layer, "beyond": beyond}
        payload |= {"key": f"lora_{matrix}_stacked"}
        run(server.post("collective_rpc", {"method": "spoil", "kwargs": payload}))
        with pytest.raises(MalformedReply, match=f" 1 differ .*{told}"):
            run(server.compare(receipt))
        engine.update_weights(policy.named_weights(), version)
        receipt = engine._newest.receipt


def test_an_adapter_beside_other_weights_is_refused(lora_server, tokenizer):
    policy = adapted(peft.LoraConfig(r=4, target_modules=["q_proj"]))
    with torch.no_grad():
        weight = policy.model.get_submodule("model.layers.1.mlp.up_proj").weight
        weight[3, 5] = torch.nextafter(weight[3, 5], weight[3, 5] + 1)
    engine = engine_of([lora_server], policy, tokenizer)
    with pytest.raises(
        ValueError, match=r"other weights than the adapter's base: .*1\.mlp\.up_pro"
    ):
        engine.update_weights(policy.named_weights(), 0)


@ONE_WORKER
def test_a_restarted_server_gets_the_adapter_again(lora_server, tokenizer):
    policy = adapted(peft.LoraConfig(r=8, target_modules=["q_proj", "down_proj"]))
    nudge(policy, seed=3)
    engine = engine_of([lora_server], policy, tokenizer)
    engine.update_weights(policy.named_weights(), 0)
    lora_server.kill()
    lora_server.start()
    asked = requests(tokenizer)
    with pytest.warns(UserWarning, match="it was restarted"):
        drawn = engine.generate(asked)
    assert largest_difference(policy, asked, drawn) < 1e-4


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (peft.LoraConfig(r=4, target_modules="all-linear", use_dora=True), "load use_dora"),
        (peft.LoraConfig(r=4, target_modules="all-linear"), "not started with .*--enable-lora"),
    ],
    ids=["dora", "server without adapters"],
)
def test_other_adapters_are_merged(gloo_servers, tokenizer, settings, reason):
    policy = adapted(settings)
    nudge(policy, seed=4)
    with pytest.warns(UserWarning, match=f"adapter: .*merged: .*{reason}"):
        engine = engine_of(gloo_servers[:1], policy, tokenizer, transfer="gloo")
    asked = requests(tokenizer)
    engine.update_weights(policy.named_weights(), 0)
    assert largest_difference(policy, asked, engine.generate(asked)) < 1e-4


def test_vllms_own_engines_accept_what_is_posted(monkeypatch):
    """NCCL and IPC need GPUs; vLLM's classes for what they are sent do not."""
    posts: list[dict[str, Any]] = []

    class Recorder(VLLMClient):
        async def post(self, path: str, payload: Any = None, meanwhile: Any = None) -> Any:
            posts.append(payload or {})

        async def label(self) -> str:
            return "before"

    monkeypatch.setattr(torch.cuda.nccl, "unique_id", lambda: bytes(range(128)))
    server = Recorder(Endpoint(url="http://127.0.0.1:9"), 1.0, "nccl")
    server.info = INFO
    run(NCCLTransfer().update(WEIGHTS, server, "run-1"))
    init, update = posts[0]["init_info"], posts[1]["update_info"]
    assert init["packed"]
    handles = base64.b64encode(pickle.dumps([{}] * len(WEIGHTS))).decode()
    ipc = described(WEIGHTS) | {"ipc_handles_pickled": handles}
    code = f"""
import os
os.environ["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"
from vllm.distributed.weight_transfer.ipc_engine import IPCWeightTransferUpdateInfo
from vllm.distributed.weight_transfer.nccl_common import NCCLWeightTransferInitInfo
from vllm.distributed.weight_transfer.nccl_engine import NCCLWeightTransferUpdateInfo
assert NCCLWeightTransferInitInfo(**{init!r}).nccl_unique_id_bytes == bytes(range(128))
assert len(NCCLWeightTransferUpdateInfo(**{update!r}).names) == 4
assert len(IPCWeightTransferUpdateInfo(**{ipc!r}).ipc_handles) == 4
"""
    done = subprocess.run([VLLM, "-c", code], cwd="/", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
