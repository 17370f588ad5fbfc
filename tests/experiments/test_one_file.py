"""The teaching loop makes the losses of ``GRPOModule``, and trains."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback
from tiny import ROOT, data, grpo_config, merge, model
from transformers import AutoModelForCausalLM

from experiments.one_file import grpo
from r1lit.batches import Rollout
from r1lit.cli import main
from r1lit.files import read_records
from r1lit.seeding import permutation
from r1lit.verifiers import CountdownVerifier, MathVerifier

MAX_TOKENS, GROUP_SIZE, ROWS_PER_UPDATE = 200, 4, 8
ROLLOUTS: list[Rollout] = []


class Capture(Callback):
    """Keeps the rollout of every iteration."""

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, *_: Any) -> None:
        ROLLOUTS.append(outputs["rollout"])


def train_with_the_module(tmp_path: Path) -> list[dict[str, float]]:
    ROLLOUTS.clear()
    change = merge(
        model(
            objective={
                "class_path": "r1lit.objectives.DrGRPO",
                "init_args": {"max_tokens": MAX_TOKENS, "epsilon": grpo.EPSILON, "beta": grpo.BETA},
            },
            rewards=[
                {"class_path": "r1lit.rewards.Accuracy"},
                {"class_path": "r1lit.rewards.Format"},
            ],
            sampling={"max_tokens": MAX_TOKENS},
            train_batch_size=ROWS_PER_UPDATE,
            max_grad_norm=grpo.MAX_GRAD_NORM,
            optimizer={
                "class_path": "torch.optim.AdamW",
                "init_args": {"lr": 1.5e-4, "betas": [0.9, 0.95], "weight_decay": 0.0},
            },
            lr_scheduler={
                "class_path": "torch.optim.lr_scheduler.LinearLR",
                "init_args": {"start_factor": 1.0, "end_factor": 0.1, "total_iters": 6},
            },
        ),
        data(num_iterations=3),
    )
    change["trainer"] = {"limit_val_batches": 0, "val_check_interval": 1}
    path = grpo_config(tmp_path / "run", ROOT / "models" / "mini", change)
    main(["fit", "-c", str(path), "--trainer.callbacks+=test_one_file.Capture"])
    return read_records(tmp_path / "run" / "metrics.jsonl")


@pytest.mark.slow
def test_its_losses_are_those_of_the_module(tmp_path: Path) -> None:
    logged = train_with_the_module(tmp_path)
    policy = AutoModelForCausalLM.from_pretrained(ROOT / "models" / "mini").train()
    reference = copy.deepcopy(policy).eval().requires_grad_(False)
    optimizer, scheduler = grpo.make_optimizer(policy, num_updates=6)
    verifiers = {"countdown": CountdownVerifier(), "math": MathVerifier()}
    assert len(ROLLOUTS) == len(logged) == 3
    for rollout, line in zip(ROLLOUTS, logged, strict=True):
        rows = []
        for b, response in enumerate(rollout.responses):
            earned = grpo.reward_of(response.text, response.problem, verifiers)
            assert sum(earned) == rollout.reward_PG.flatten()[b]
            tokens = rollout.response_BT[b, : response.num_tokens].tolist()
            prompt = list(rollout.prompts[b // GROUP_SIZE])
            rows.append(grpo.Row(prompt, tokens, reward=sum(earned)))
        grpo.set_advantages(rows, GROUP_SIZE)
        order = permutation(len(rows), 0, "rows", rollout.iteration, 0)
        batches = [order[:ROWS_PER_UPDATE], order[ROWS_PER_UPDATE:]]
        losses = grpo.iterate(policy, reference, optimizer, scheduler, rows, batches, MAX_TOKENS)
        assert sum(losses) / 2 == pytest.approx(line["train/loss"], rel=1e-5, abs=1e-7)
    assert any(line["train/reward_std"] > 0 for line in logged), "nothing was learned from"


@pytest.mark.slow
def test_it_trains(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("sys.argv", ["grpo", "--iterations", "2", "--prompts", "2"])
    num_threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        grpo.main()
    finally:  # the tests that follow compare bits with processes of one thread
        torch.set_num_threads(num_threads)
    assert capsys.readouterr().out.count("accuracy") == 2


def test_it_is_short_and_stands_alone() -> None:
    source = (ROOT / "experiments" / "one_file" / "grpo.py").read_text()
    assert len(source.splitlines()) <= 200
    imports = [line for line in source.splitlines() if line.startswith(("import", "from"))]
    assert not [line for line in imports if "lightning" in line]
    ours = [line.split()[1] for line in imports if "r1lit" in line]
    assert ours == ["r1lit.verifiers", "r1lit.worlds"]
