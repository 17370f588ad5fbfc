"""Weights on their way to vLLM, without it: folders, gloo on both sides, and servers that fail."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from safetensors.torch import load_file
from test_vllm_client import serving
from tiny import ROOT
from torch import distributed as dist

from r1lit.endpoint.client import RequestError, run
from r1lit.policy import ModelSource, load_policy
from r1lit.rollout.vllm import weights as module
from r1lit.rollout.vllm.weights import (
    TRANSFERS,
    GlooTransfer,
    max_lora_rank,
    why_merged,
    write_weights,
)

WEIGHTS = [
    ("matrix", torch.arange(12.0).reshape(3, 4).T),
    ("half", torch.randn(5).to(torch.bfloat16)),
    ("flags", torch.tensor([True, False, True])),
    ("number", torch.tensor(7)),
]


def test_all_weights_are_there_and_tied_ones_by_both_names(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SHARD_BYTES", 2**20)
    policy = load_policy(str(ROOT / "models" / "mini"))
    weights = policy.model.state_dict()
    folder = tmp_path / "weights" / "1"
    names = write_weights(folder, weights.items())
    files = sorted(folder.iterdir())
    assert len(files) > 4 and all(file.stat().st_size < 3 * 2**20 for file in files)
    read = {name: tensor for file in files for name, tensor in load_file(file).items()}
    assert names == list(weights) and set(read) == set(weights)
    assert {"lm_head.weight", "model.embed_tokens.weight"} <= set(read)
    assert all(torch.equal(read[name], weights[name]) for name in names)


def test_a_kill_leaves_no_half_folder(tmp_path):
    def half():
        yield "a", torch.zeros(3)
        raise KeyboardInterrupt

    try:
        write_weights(tmp_path / "1", half())
    except KeyboardInterrupt:
        assert not (tmp_path / "1").exists()
    names = write_weights(tmp_path / "1", [("b", torch.ones(2, 2).t())])
    assert names == ["b"] and [path.name for path in tmp_path.iterdir()] == ["1"]


def receive(info: dict[str, Any], most: int = 99) -> list[tuple[str, torch.Tensor]]:
    """What vLLM's worker does with an update, of ``most`` buckets."""
    timeout = timedelta(seconds=info["timeout_s"])
    store = dist.TCPStore(info["host"], info["port"], info["size"], False, timeout)
    group = dist.ProcessGroupGloo(dist.PrefixStore("r1lit", store), 1, info["size"], timeout)
    buckets: list[list[tuple[str, torch.Tensor]]] = [[]]
    wanted = zip(info["names"], info["dtype_names"], info["shapes"], strict=True)
    for name, dtype, shape in wanted:
        if sum(tensor.nbytes for _, tensor in buckets[-1]) > info["bucket_bytes"]:
            buckets.append([])
        buckets[-1].append((name, torch.empty(shape, dtype=getattr(torch, dtype))))
    got = []
    for bucket in buckets[:most]:
        sizes = [tensor.nbytes for _, tensor in bucket]
        sent = torch.empty(sum(sizes), dtype=torch.uint8)
        group.broadcast([sent], dist.BroadcastOptions()).wait()
        for (name, tensor), own in zip(bucket, sent.split(sizes), strict=True):
            tensor.reshape(-1).view(torch.uint8).copy_(own)
            got.append((name, tensor))
    return got


@pytest.mark.parametrize(
    ("bucket_bytes", "sizes"), [(10**6, [8 * 3 + 2 * 4]), (24, [32]), (23, [24, 8]), (0, [24, 8])]
)
def test_tensors_are_joined_until_they_exceed_a_bucket(monkeypatch, bucket_bytes, sizes):
    monkeypatch.setattr(module, "BUCKET_BYTES", bucket_bytes)
    two = [("a", torch.arange(3)), ("b", torch.ones(2, 2, dtype=torch.bfloat16).t())]
    rows = list(module.buckets(two, torch.device("cpu")))
    assert [row.numel() for row in rows] == sizes
    first, second = torch.cat(rows).split([24, 8])
    assert first.view(torch.int64).tolist() == [0, 1, 2]
    assert second.view(torch.bfloat16).tolist() == [1.0] * 4


@pytest.mark.parametrize("bucket_bytes", [1, 100, 10**9])
def test_gloo_broadcasts_every_dtype_and_shape(tmp_path: Path, monkeypatch, bucket_bytes: int):
    monkeypatch.setattr(module, "BUCKET_BYTES", bucket_bytes)
    got: list[tuple[str, torch.Tensor]] = []

    def update(payload: dict[str, Any]) -> Any:
        got.extend(receive(payload["update_info"]))
        return {}

    label = {"weight_info": lambda _: {"weight_version": "before"}}
    with serving({"update_weights": update} | label, hang_s=10) as (server, posted):
        send = GlooTransfer().take(iter(WEIGHTS), tmp_path)
        run(send(server, "run-1"))
        run(send(server, "run-1"))  # to one that comes back
    assert posted == ["start_weight_update", "update_weights", "finish_weight_update"] * 2
    assert [name for name, _ in got] == [name for name, _ in WEIGHTS] * 2
    for (_, sent), (_, arrived) in zip(WEIGHTS * 2, got, strict=True):
        assert sent.dtype == arrived.dtype
        assert torch.equal(sent, arrived)


def test_a_server_that_goes_in_the_middle_of_a_broadcast_is_no_hang(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(module, "BUCKET_BYTES", 10**6)

    def update(payload: dict[str, Any]) -> Any:
        receive(payload["update_info"], most=1)
        return 500, "out of memory"

    label = {"weight_info": lambda _: {"weight_version": "before"}}
    with serving({"update_weights": update} | label, hang_s=5) as (server, posted):
        large = [(f"w{i}", torch.zeros(10**6)) for i in range(20)]
        send = GlooTransfer().take(large, tmp_path)
        with pytest.raises(RequestError):
            run(send(server, "run-1"))
    assert posted[-1] == "finish_weight_update", "so that the next try can begin"


@pytest.mark.parametrize("name", ["nccl", "ipc"])
def test_transfers_of_gpus_refuse_weights_elsewhere(name: str):
    with pytest.raises(ValueError, match=f"transfer: {name} needs the policy on a GPU, .* on cpu"):
        TRANSFERS[name]().check(weight for _, weight in WEIGHTS)


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
    adapter = load_policy(ModelSource(str(policy), adapter=settings)).adapter
    assert adapter is not None
    found = why_merged(adapter)
    assert found is None if reason is None else reason in str(found)


def test_the_largest_rank_decides_the_servers_flag(policy: Path):
    settings = peft.LoraConfig(r=4, target_modules=ALL, rank_pattern={"q_proj": 20})
    adapter = load_policy(ModelSource(str(policy), adapter=settings)).adapter
    assert adapter is not None
    assert max_lora_rank(adapter) == 32


def test_a_transfer_that_there_is_not_is_named(fit, tmp_path: Path):
    engine = {"class_path": "r1lit.rollout.VLLMEngine"}
    engine["init_args"] = {"urls": ["http://127.0.0.1:9"], "transfer": "pigeon"}
    with pytest.raises(ValueError, match="pigeon"):
        fit("run", {"model": {"init_args": {"engine": engine}}})
