"""One GPU by turns: engine and optimiser give their memory to each other."""

from __future__ import annotations

import json
import urllib.request
from dataclasses import replace
from typing import Any

import pytest
import torch
from real_vllm import MINI, SMALL, VLLM, RealServer, needs_vllm
from test_vllm import differences, requests
from test_vllm_training import config, served
from tiny import ahead, metrics

from r1lit.cli import main
from r1lit.modules.optimizer_states import move_states
from r1lit.policy import ModelSource, load_policy, load_tokenizer
from r1lit.rollout import InProcessEngine, ModelSpec, VLLMEngine

EVENTS: list[str] = []


class Turns(InProcessEngine):
    """Writes down when it generates and gives up its memory."""

    capabilities = replace(InProcessEngine.capabilities, runs="in turns")

    def stream(self, *args: Any, **options: Any) -> None:
        EVENTS.append("generates")
        super().stream(*args, **options)

    def release(self) -> None:
        EVENTS.append("sleeps")


ENGINE = {"class_path": "test_engine_turns.Turns", "init_args": {"compile": False}}


def adam() -> torch.optim.Optimizer:
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW([weight])
    weight.sum().backward()
    optimizer.step()
    return optimizer


def test_an_optimisers_moments_move_and_its_count_stays() -> None:
    optimizer = adam()
    [state] = optimizer.state.values()
    move_states([optimizer], torch.device("meta"))
    assert {k: v.device.type for k, v in state.items()} == {
        "step": "cpu", "exp_avg": "meta", "exp_avg_sq": "meta"
    }  # fmt: skip


@pytest.mark.gpu
def test_an_update_after_a_stay_on_the_host_is_the_same() -> None:
    device = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    results = []
    for moves in (False, True):
        weight = torch.nn.Parameter(torch.ones(3, device=device))
        optimizer = torch.optim.AdamW([weight], fused=True)
        for _ in range(3):
            if moves:
                move_states([optimizer], torch.device("cpu"))
                assert optimizer.state[weight].get("exp_avg", torch.ones(1)).device.type == "cpu"
                move_states([optimizer], device)
            (weight**3).sum().backward()
            optimizer.step()
        results.append(weight.detach())
    assert torch.equal(*results)


@pytest.mark.long
def test_the_engine_sleeps_before_the_updates(fit, monkeypatch) -> None:
    EVENTS.clear()
    from r1lit.modules import rollouts
    from r1lit.modules.base import PolicyModule

    whole = PolicyModule.make_update
    monkeypatch.setattr(
        PolicyModule,
        "make_update",
        lambda *args, **options: (EVENTS.append("updates"), whole(*args, **options))[1],
    )
    assert rollouts.move_states is move_states
    change = {"model": {"init_args": {"engine": ENGINE}}, "trainer": {"limit_val_batches": 0}}
    cli = fit("turns", change)
    order = [e for i, e in enumerate(EVENTS) if i == 0 or e != EVENTS[i - 1]]
    assert order[:6] == ["generates", "sleeps", "updates"] * 2
    devices = {v.device for s in cli.trainer.optimizers[0].state.values() for v in s.values()}
    assert devices == {torch.device("cpu")}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"in_flight_updates": True}, "sleep: true with in_flight_updates"),
        ({"transfer": "nccl"}, "sleep: true with transfer: nccl"),
    ],
)
def test_what_a_sleeping_server_cannot_do(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        VLLMEngine(urls=["http://127.0.0.1:9"], sleep=True, **options)


@pytest.mark.long
def test_nothing_is_generated_ahead_by_turns(fit) -> None:
    model = {"init_args": {"engine": ENGINE, "collector": ahead(1)}}
    with pytest.raises(ValueError, match="max_staleness: 1 generates during updates"):
        fit("ahead", {"model": model})


def is_sleeping(url: str) -> bool:
    with urllib.request.urlopen(f"{url}/is_sleeping", timeout=30) as reply:
        return bool(json.load(reply)["is_sleeping"])


@needs_vllm
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("transfer", ["gloo"])
def test_a_real_server_sleeps_and_wakes(tmp_path, monkeypatch, transfer: str) -> None:
    """vLLM's CPU build keeps its memory; what it answers and when it generates is the real one."""
    from r1lit.rollout.vllm import weights as module

    monkeypatch.setattr(module, "BUCKET_BYTES", 1 << 20)  # several buckets
    backend = {"--weight-transfer-config": json.dumps({"backend": transfer})}
    server = RealServer(tmp_path / "server.log", backend).start()
    try:
        policy = load_policy(ModelSource(str(MINI), dtype="float32", attention="sdpa"))
        tokenizer = load_tokenizer(str(MINI))
        engine = VLLMEngine(urls=[server.url], sleep=True, transfer=transfer, patience_s=60)
        engine.bind(ModelSpec(name=str(MINI), tokenizer=tokenizer, policy=policy))
        asked = requests(tokenizer, prompts=2)
        first = engine.generate(asked)
        assert not is_sleeping(server.url)
        engine.release()
        assert is_sleeping(server.url)
        again = engine.generate(asked)  # wakes it, with the weights that it had
        assert not is_sleeping(server.url)
        for one, two in zip(first, again, strict=True):
            assert torch.equal(one.token_ids, two.token_ids) and torch.equal(one.logps, two.logps)
        engine.release()
        with torch.no_grad():
            for weight in policy.parameters():
                weight.mul_(1.01)
        engine.update_weights(policy.named_weights(), 1)  # receipts and log-probs are compared
        assert not is_sleeping(server.url)
        late = engine.generate(asked)
        assert max(float(d.max()) for d in differences(policy, asked, late)) < 1e-4
        engine.close()
    finally:
        server.kill()


@needs_vllm
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_by_turns_has_the_numbers_of_one_without(tmp_path, monkeypatch) -> None:
    for name, value in SMALL.items():
        monkeypatch.setenv(name, value)
    keys = ("train/reward", "train/loss", "train/grad_norm")
    rows = []
    for name, sleep in (("awake", False), ("turns", True)):
        path = config(tmp_path / name, **served(), sleep=sleep)
        main(["fit", "-c", str(path), "--data.init_args.num_iterations", "2"])
        rows.append([[line[key] for key in keys] for line in metrics(tmp_path / name)])
    assert rows[0] == rows[1] and len(rows[0]) == 2
    log = (tmp_path / "turns" / "vllm.log").read_text()
    assert log.count("/sleep?") == 2 and "/wake_up" in log and VLLM
