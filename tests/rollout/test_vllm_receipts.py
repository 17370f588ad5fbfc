"""Receipts: digests by hand, servers that keep tensors joined, split or twice, and adapters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import peft
import pytest
import torch
from tiny import ROOT

from r1lit.policy import ModelSource, load_policy
from r1lit.policy.adapter import Adapter
from r1lit.rollout.vllm.receipts import AdapterReceipt, Receipt
from r1lit.rollout.vllm_worker.r1lit_vllm_digest import CHUNK, digest, keys

CPU = torch.device("cpu")
GENERATOR = torch.Generator().manual_seed(0)
WEIGHTS = {
    "q": torch.randn(6, 4, generator=GENERATOR),
    "k": torch.randn(2, 4, generator=GENERATOR),
    "norm": torch.randn(4, generator=GENERATOR),
    "head": torch.randn(8, 4, generator=GENERATOR),
}
WEIGHTS["embed"] = WEIGHTS["head"]


def test_the_digest_by_hand() -> None:
    key = [int(k) for k in keys(0, 3, CPU)]
    assert all(k % 2 for k in key) and len(set(key)) == 3
    assert digest(torch.tensor([1.0, 2.0])) == (0x3F800000 * key[0] + 0x40000000 * key[1]) % 2**64
    assert digest(torch.tensor([[0.0], [-0.0]])) == 0
    assert digest(torch.tensor([7, 0, 2])) == (7 * key[0] + 2 * key[2]) % 2**64
    assert digest(torch.tensor([True, False, True])) == (key[0] + key[2]) % 2**64
    long = torch.arange(CHUNK + 5)
    assert (
        digest(long)
        == (digest(long[:CHUNK]) + int((keys(CHUNK, CHUNK + 5, CPU).long() * long[CHUNK:]).sum()))
        % 2**64
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_no_bit_of_no_element_is_lost(dtype: torch.dtype) -> None:
    weight = torch.randn(64, generator=GENERATOR).to(dtype)
    bits = weight.view({2: torch.int16, 4: torch.int32}[weight.element_size()])
    own = {digest(weight)}
    for place in range(0, 64, 9):
        for bit in range(8 * weight.element_size() - 1):
            changed = bits.clone()
            changed[place] ^= 1 << bit
            own.add(digest(changed.view(dtype)))
    assert len(own) == 1 + 8 * (8 * weight.element_size() - 1)
    assert digest(weight.flip(0)) not in own  # places count


def place(held: torch.Tensor, placed: torch.Tensor) -> dict[str, Any]:
    ones = torch.ones(placed.shape, dtype=torch.uint8)
    return {
        "digest": str(digest(held, placed)),
        "keys": str(digest(ones, placed)),
        "count": int((placed != 0).sum()),
        "dtype": str(held.dtype).removeprefix("torch."),
    }


def worker(held: dict[str, torch.Tensor], rank: int, size: int) -> dict[str, list[dict[str, Any]]]:
    """One of ``size`` workers: its rows of q and k joined and of the head, and all of the norm."""
    own = {name: keys(0, w.numel(), CPU).reshape(w.shape) for name, w in held.items()}
    rows = {n: slice(rank * len(w) // size, (rank + 1) * len(w) // size) for n, w in held.items()}
    joined = torch.cat([held["q"][rows["q"]], held["k"][rows["k"]]])
    split = len(held["q"][rows["q"]])
    placed_q, placed_k = (torch.zeros(joined.shape, dtype=torch.int32) for _ in range(2))
    placed_q[:split], placed_k[split:] = own["q"][rows["q"]], own["k"][rows["k"]]
    return {
        "q": [place(joined, placed_q)],
        "k": [place(joined, placed_k)],
        "norm": [place(held["norm"], own["norm"])],
        "head": [],  # tied: vLLM loads the embedding alone
        "embed": [place(held["embed"][rows["embed"]], own["embed"][rows["embed"]])] * 2,
    }


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_servers_join_split_and_keep_twice(size: int, dtype: torch.dtype) -> None:
    receipt = Receipt(WEIGHTS.items(), [dtype])
    held = {name: weight.to(dtype) for name, weight in WEIGHTS.items()}
    assert receipt.differences([worker(held, r, size) for r in range(size)]) == ([], [])
    for name in ("q", "k", "norm", "embed"):
        one = held | {name: held[name].clone()}
        bits = one[name].view(torch.int16 if dtype == torch.bfloat16 else torch.int32)
        bits.view(-1)[-1] ^= 1
        assert receipt.differences([worker(one, r, size) for r in range(size)])[0] == [name]
    swapped = held | {"q": held["q"].flip(0)}
    assert receipt.differences([worker(swapped, r, size) for r in range(size)])[0] == ["q"]
    wrong, unread = receipt.differences([worker(held, 0, 2)])  # half of the workers
    assert wrong == [] and unread == ["q", "k", "head", "embed"]


def test_what_a_server_converts_cannot_be_compared() -> None:
    receipt = Receipt(WEIGHTS.items(), [])
    held = worker(WEIGHTS, 0, 1)
    held["norm"] = [held["norm"][0] | {"dtype": "another"}]
    held["q"] = [place(WEIGHTS["q"], torch.ones(6, 4, dtype=torch.int32))]  # its loader computes
    assert receipt.differences([held]) == ([], ["q", "norm"])


LORA = {"r": 4, "lora_alpha": 12, "target_modules": ["q_proj", "down_proj"]}


def adapter_of(settings: Mapping[str, Any]) -> Adapter:
    source = ModelSource(str(ROOT / "models" / "mini"), adapter=peft.LoraConfig(**settings))
    adapter = load_policy(source).adapter
    assert adapter is not None
    nudge(adapter, seed=0)
    return adapter


def nudge(adapter: Adapter, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in adapter.weights:
            weight += 0.1 * torch.randn(weight.shape, generator=generator)


def lora_worker(
    tensors: Mapping[str, torch.Tensor], scale: float, dtype: torch.dtype
) -> dict[str, list[dict[str, Any]]]:
    """A worker with an adapter as vLLM holds it: in its own dtype, B times the scale."""
    held = {}
    for name, tensor in tensors.items():
        here = tensor.to(dtype) * (scale if ".lora_B." in name else 1)
        held[name] = [place(here, keys(0, tensor.numel(), CPU).reshape(tensor.shape))]
    return held


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rslora", [False, True])
def test_an_adapter_at_its_scale_and_at_others(rslora: bool, dtype: torch.dtype) -> None:
    adapter = adapter_of(LORA | {"use_rslora": rslora})
    receipt = AdapterReceipt(adapter, [dtype])
    tensors = adapter.stored(adapter.gather())
    assert len(tensors) == 2 * 2 * len(adapter.model.model.layers)
    scales = {"alpha / rank": 3.0, "alpha / sqrt(rank)": 6.0, "1": 1.0}
    own = scales.pop("alpha / sqrt(rank)" if rslora else "alpha / rank")
    assert receipt.differences([lora_worker(tensors, own, dtype)]) == ([], [])
    for told, scale in scales.items():
        held = [lora_worker(tensors, scale, dtype)]
        wrong, unread = receipt.differences(held)
        assert wrong == [name for name in tensors if ".lora_B." in name] and unread == []
        assert receipt.fault(wrong, held) == f"they are the policy's at another scale, {told}"


def test_an_adapter_that_is_stale_or_there_in_part() -> None:
    adapter = adapter_of(LORA)
    first = AdapterReceipt(adapter, [])
    old = {name: x.clone() for name, x in adapter.stored(adapter.gather()).items()}
    nudge(adapter, seed=1)
    receipt = AdapterReceipt(adapter, [], first)
    new = adapter.stored(adapter.gather())
    right = lora_worker(new, 3.0, torch.float32)
    assert receipt.differences([right]) == ([], [])
    stale = [lora_worker(old, 3.0, torch.float32)]
    wrong, _ = receipt.differences(stale)
    assert len(wrong) == len(new) and "those of the version before" in receipt.fault(wrong, stale)
    q = [name for name in new if "q_proj" in name]
    for gone in ({name: [] for name in q}, {name: stale[0][name] for name in q}):
        half = [right | gone]
        wrong, unread = receipt.differences(half)
        assert sorted(wrong) == sorted(q) and unread == []
        assert "there in part" in receipt.fault(wrong, half)
    other_scale = [lora_worker(new, 2.5, torch.float32)]
    wrong, _ = receipt.differences(other_scale)
    assert "B differs and A does not: its scale" in receipt.fault(wrong, other_scale)
    more = [right | {"model.layers.0.self_attn.o_proj": right[q[0]]}]
    wrong, _ = receipt.differences(more)
    assert wrong == ["model.layers.0.self_attn.o_proj"]
    assert "holds more than the policy's" in receipt.fault(wrong, more)
    nudge(adapter, seed=2)
    other = [lora_worker(adapter.stored(adapter.gather()), 3.0, torch.float32)]
    wrong, _ = receipt.differences(other)
    assert len(wrong) == len(new) and "another adapter" in receipt.fault(wrong, other)


def cut(
    name: str, tensor: torch.Tensor, rank: int, sharded: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """What one of two workers holds of a tensor, and its keys, as vLLM's layers cut it.

    ``sharded`` is its ``--fully-sharded-loras`` with a ``--max-lora-rank`` of twice the rank, so
    that one worker has all rows of A.
    """
    own = keys(0, tensor.numel(), CPU).reshape(tensor.shape)
    rows, columns = (size // 2 for size in tensor.shape)
    by_rows = slice(rank * rows, (rank + 1) * rows), slice(None)
    by_columns = slice(None), slice(rank * columns, (rank + 1) * columns)
    whole, none = (slice(None), slice(None)), (slice(0), slice(None))
    is_b = ".lora_B." in name
    if "down_proj" in name:  # is cut where it reads
        part = by_columns if not is_b else by_rows if sharded else whole
    else:
        part = by_rows if is_b else none if sharded and rank else whole
    return tensor[part], own[part]


def lora_workers(
    of_rank: Sequence[Mapping[str, torch.Tensor]], scale: float, sharded: bool
) -> list[dict[str, list[dict[str, Any]]]]:
    """Two workers, each with its part of an adapter of its own."""
    held: list[dict[str, list[dict[str, Any]]]] = []
    for rank, tensors in enumerate(of_rank):
        parts = {name: cut(name, tensor, rank, sharded) for name, tensor in tensors.items()}
        held.append(
            {
                name: [place(here * (scale if ".lora_B." in name else 1), own)]
                for name, (here, own) in parts.items()
                if own.numel()
            }
        )
    return held


@pytest.mark.parametrize("sharded", [False, True])
def test_an_adapter_in_two_workers(sharded: bool) -> None:
    adapter = adapter_of(LORA)
    first = AdapterReceipt(adapter, [])
    old = {name: x.clone() for name, x in adapter.stored(adapter.gather()).items()}
    nudge(adapter, seed=1)
    receipt = AdapterReceipt(adapter, [], first)
    new = {name: x.clone() for name, x in adapter.stored(adapter.gather()).items()}
    assert receipt.differences(lora_workers([new, new], 3.0, sharded)) == ([], [])
    for rank in range(2):  # one element, in one worker
        for name in list(new)[:4]:
            changed = {key: x.clone() for key, x in new.items()}
            here, _ = cut(name, changed[name], rank, sharded)
            if here.numel():
                for _ in range(2):  # one would be rounded away by some products with the scale
                    here[-1, -1] = torch.nextafter(here[-1, -1], here[-1, -1] + 1)
                held = [changed if rank == r else new for r in range(2)]
                wrong, unread = receipt.differences(lora_workers(held, 3.0, sharded))
                assert (wrong, unread) == ([name], [])
    stale = lora_workers([old, old], 3.0, sharded)
    assert "those of the version before" in receipt.fault(receipt.differences(stale)[0], stale)
    half = lora_workers([new, old], 3.0, sharded)  # one worker has not taken it
    wrong, unread = receipt.differences(half)
    assert set(wrong) >= {name for name in new if ".lora_B." in name} and unread == []
    other = lora_workers([new, new], 1.0, sharded)
    wrong, _ = receipt.differences(other)
    assert set(wrong) == {name for name in new if ".lora_B." in name}
    assert receipt.fault(wrong, other) == "they are the policy's at another scale, 1"


def test_an_adapter_whose_parts_are_not_whole() -> None:
    adapter = adapter_of(LORA)
    receipt = AdapterReceipt(adapter, [])
    tensors = adapter.stored(adapter.gather())
    held = lora_workers([tensors, tensors], 3.0, sharded=False)
    b = [name for name in tensors if "q_proj.lora_B." in name]
    for gone in ({name: [] for name in b}, {name: held[0][name] for name in b}):
        wrong, unread = receipt.differences([held[0], held[1] | gone])  # a half, and the same twice
        assert (wrong, unread) == (b, [])
    converted = {b[0]: [held[1][b[0]][0] | {"dtype": "bfloat16"}]}
    assert receipt.differences([held[0], held[1] | converted]) == ([], [b[0]])
