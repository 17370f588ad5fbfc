"""``--deterministic true``: the same bits from two runs, on the device that is there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from lightning.pytorch import Callback
from test_fsdp2 import exported
from tiny import data, grpo_config, merge, metrics, model

from r1lit.cli import main
from r1lit.device import BACKENDS, backend
from r1lit.device.operations import cumulative_sum, doubled_sums
from r1lit.rollout import VLLMEngine
from r1lit.rollout.engine import ModelSpec

pytestmark = pytest.mark.gpu

ANYWHERE = {"trainer": {"accelerator": "auto", "devices": 1, "limit_val_batches": 0}}
CHANGE = merge(
    merge(ANYWHERE, data(num_iterations=3)),
    model(sampling={"max_tokens": 24, "top_p": 0.9}, num_inner_epochs=2),
)


class Unordered(Callback):
    """Does what has no deterministic algorithm on any device."""

    def on_train_batch_start(self, trainer, pl_module, *_) -> None:
        zeros = torch.zeros(2, device=pl_module.device)
        zeros.put_(torch.tensor([0, 0], device=zeros.device), torch.ones_like(zeros))


@pytest.mark.long
def test_two_runs_are_equal_to_the_bit(tmp_path: Path, policy: Path) -> None:
    runs = [tmp_path / name for name in ("one", "two")]
    for run in runs:
        main(["fit", "-c", str(grpo_config(run, policy, CHANGE)), "--deterministic", "true"])
        assert not torch.are_deterministic_algorithms_enabled()
    rows = [
        [{k: v for k, v in row.items() if k.startswith("train/")} for row in metrics(run)]
        for run in runs
    ]
    assert len(rows[0]) == 3 and rows[0] == rows[1]
    one, two = (exported(run) for run in runs)
    assert one.keys() == two.keys()
    assert all(
        torch.equal(one[name].view(torch.uint8), two[name].view(torch.uint8)) for name in one
    )


@pytest.mark.long
def test_what_has_no_fixed_order_ends_the_run(tmp_path: Path, policy: Path) -> None:
    own = {"trainer": {"callbacks+": [{"class_path": "test_deterministic.Unordered"}]}}
    config = str(grpo_config(tmp_path / "run", policy, merge(CHANGE, own)))
    with pytest.raises(RuntimeError, match=r"put_.* does not have a deterministic implementation"):
        main(["fit", "-c", config, "--deterministic", "true"])
    assert not torch.are_deterministic_algorithms_enabled()


def test_settings_of_a_gpu_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")  # a user's stays
    monkeypatch.delenv("TORCHINDUCTOR_BATCH_INVARIANT", raising=False)
    cuda, before = torch.backends.cuda, torch.backends.cuda.cudnn_sdp_enabled()
    reduced = cuda.matmul.allow_bf16_reduced_precision_reduction
    with pytest.raises(KeyError), BACKENDS["cuda"].deterministic():
        assert torch.are_deterministic_algorithms_enabled() and not cuda.cudnn_sdp_enabled()
        assert not cuda.matmul.allow_bf16_reduced_precision_reduction
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"
        assert os.environ["TORCHINDUCTOR_BATCH_INVARIANT"] == "1"
        raise KeyError
    assert not torch.are_deterministic_algorithms_enabled()
    assert cuda.cudnn_sdp_enabled() == before and "TORCHINDUCTOR_BATCH_INVARIANT" not in os.environ
    assert cuda.matmul.allow_bf16_reduced_precision_reduction == reduced


@pytest.mark.parametrize("size", [1, 2, 5, 64, 1000])
def test_sums_in_a_fixed_order(size: int) -> None:
    values = torch.rand(3, size, dtype=torch.float64)
    torch.testing.assert_close(doubled_sums(values), values.cumsum(-1), rtol=1e-14, atol=0.0)
    device = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    with backend(device).deterministic():
        once, again = (cumulative_sum(values.to(device)) for _ in range(2))
    assert torch.equal(once, again)


def test_updates_within_responses_are_refused() -> None:
    engine = VLLMEngine(urls=["http://127.0.0.1:9"], in_flight_updates=True)
    with (
        backend(torch.device("cpu")).deterministic(),
        pytest.raises(ValueError, match="in_flight_updates: true with deterministic: true"),
    ):
        engine.bind(ModelSpec.__new__(ModelSpec))
