"""Speed and memory as logged, by hand."""

import pytest
import torch

from r1lit.modules.speed import host_memory, speed_metrics


def test_tokens_a_second_and_memory_on_a_cpu():
    metrics = {"train/num_tokens": 1200.0, "time/rollout_s": 4.0, "time/update_s": 3.0}
    got = speed_metrics(metrics, torch.device("cpu"), flops_per_token=6.0)
    assert got["speed/rollout_tokens_per_s"] == 300 and got["speed/update_tokens_per_s"] == 400
    assert 0.01 < got["memory/host_gib"] <= got["memory/host_peak_gib"] * 1.01 < 100
    assert not [key for key in got if "device" in key or "mfu" in key]
    assert not [key for key in speed_metrics({}, torch.device("cpu"), 6.0) if "speed" in key]


def test_mfu_of_a_known_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA A100-SXM4-80GB")
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 1 << 30)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _: 3 << 30)
    metrics = {"train/num_tokens": 2e4, "time/update_s": 1.0}
    # 6 * 1.5e9 weights * 2e4 tokens = 1.8e14 FLOPs in a second, of 3.12e14
    got = speed_metrics(metrics, torch.device("cuda"), flops_per_token=6 * 1.5e9)
    assert got["speed/update_mfu"] == pytest.approx(1.8 / 3.12)
    assert (got["memory/device_gib"], got["memory/device_peak_gib"]) == (1, 3)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "an unknown one")
    assert "speed/update_mfu" not in speed_metrics(metrics, torch.device("cuda"), 1.0)


def test_a_touched_gigabyte_is_seen():
    before = host_memory()["memory/host_gib"]
    held = torch.ones(1 << 26)  # a quarter of a GiB
    assert host_memory()["memory/host_gib"] - before == pytest.approx(0.25, abs=0.05)
    del held
