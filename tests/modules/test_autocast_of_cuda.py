"""Runs in mixed precision with CUDA's autocast, imitated on a CPU: it casts more to float32.

There a sum of bfloat16 numbers is float32, for example, so what is written in place may have
another dtype than on a CPU.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from test_distillation import of
from test_ppo import ppo
from test_sft_module import documents, sft  # noqa: F401
from tiny import data, grpo_config, merge, metrics, model, save_policy
from tiny_distillation import off_policy
from tiny_reward import reward_config, write_pairs
from torch.utils._pytree import tree_map

from r1lit.cli import main

# https://docs.pytorch.org/docs/stable/amp.html, "CUDA Ops that can autocast to float32"
TO_FLOAT32 = """
    __pow__ __rdiv__ __rpow__ __rtruediv__ acos asin binary_cross_entropy_with_logits cosh
    cosine_embedding_loss cdist cosine_similarity cross_entropy cumprod cumsum dist erfinv exp
    expm1 group_norm hinge_embedding_loss kl_div l1_loss layer_norm log log10 log_softmax log1p
    log2 margin_ranking_loss mse_loss nll_loss norm normalize pdist pow prod reciprocal rsqrt
    sinh smooth_l1_loss soft_margin_loss softmax softmin softplus sum renorm tan
"""
MIXED = {"trainer": {"precision": "bf16-mixed"}}
WITH_KL = {"class_path": "r1lit.objectives.GRPO", "init_args": {"beta": 0.05}}


@pytest.fixture(autouse=True)
def casts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the casts by operation; a backward pass of our own is Python too and casts as well."""
    counted: Counter[str] = Counter()

    def replace(owner: Any, name: str, own: Callable[..., Any]) -> None:
        def cast(value: Any) -> Any:
            if isinstance(value, torch.Tensor) and value.dtype is torch.bfloat16:
                counted[name] += 1
                return value.float()
            return value

        @functools.wraps(own)
        def in_float32(*args: Any, **kwargs: Any) -> Any:
            if torch.is_autocast_enabled("cpu") and "out" not in kwargs:
                args = tree_map(cast, args)
            return own(*args, **kwargs)

        monkeypatch.setattr(owner, name, in_float32)

    for name in TO_FLOAT32.split():
        for owner in (torch, torch.Tensor, torch.nn.functional):
            if callable(own := getattr(owner, name, None)):
                replace(owner, name, own)
    return counted


@pytest.mark.long
@pytest.mark.parametrize(
    "change",
    [
        pytest.param(model(objective=WITH_KL), id="grpo"),
        pytest.param(model(gradient_checkpointing=True), id="checkpointing"),
        pytest.param(ppo(), id="ppo"),
    ],
)
def test_reinforcement_learning(
    tmp_path: Path, policy: Path, change: dict[str, Any], casts: Counter[str]
) -> None:
    two = merge(data(num_iterations=2), model(sampling={"max_tokens": 24}))
    config = grpo_config(tmp_path / "run", policy, merge(merge(change, two), MIXED))
    main(["fit", "-c", str(config), "--slow_bf16", "true"])
    assert len(metrics(tmp_path / "run")) == 2
    assert casts["sum"]


def test_supervised(tmp_path: Path, policy: Path, documents: Path) -> None:  # noqa: F811
    few = ["--data.num_iterations", "3", "--trainer.precision", "bf16-mixed"]
    main(["fit", "-c", str(sft(tmp_path / "run", policy, documents)), *few])


@pytest.mark.long
def test_distillation(tmp_path: Path, policy: Path) -> None:
    few = ["--data.num_iterations", "3", "--trainer.precision", "bf16-mixed"]
    teacher = save_policy(tmp_path / "teacher", seed=5)
    config = off_policy(tmp_path / "run", policy, teacher=of(teacher))
    main(["fit", "-c", str(config), *few])


@pytest.mark.long
def test_reward_model(tmp_path: Path, policy: Path) -> None:
    table = write_pairs(tmp_path / "pairs.jsonl")
    main(["fit", "-c", str(reward_config(tmp_path / "run", policy, table, MIXED))])
