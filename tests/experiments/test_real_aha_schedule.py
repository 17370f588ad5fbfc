"""The warm-up of priming: the rate of each update, an interrupted run, and bad input."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from tiny import grpo_config

from experiments.real_aha.schedule import WarmedCosine
from r1lit.cli import main

NUM_UPDATES = 10
WARM_UP = 0.2
WANTED = [0.5, 0.97553, 0.90451, 0.79389, 0.65451, 0.5, 0.34549, 0.20611, 0.09549, 0.02447, 0.0]
"""Half of the rate, then (1 + cos(pi i / 10)) / 2 of it."""


class StopAt(pl.Callback):
    """Ends a run with an error before an iteration."""

    def __init__(self, iteration: int) -> None:
        self.iteration = iteration

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if batch_idx == self.iteration:
            raise RuntimeError("stopped")


def made(**options: float) -> tuple[torch.optim.SGD, WarmedCosine]:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = WarmedCosine(optimizer, **options)
    schedule.fall_over(NUM_UPDATES)
    return optimizer, schedule


def advance(optimizer: torch.optim.SGD, schedule: WarmedCosine, num_updates: int) -> list[float]:
    rates = []
    for _ in range(num_updates):
        rates.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        schedule.step()
    return rates


def test_the_rate_of_each_update():
    rates = advance(*made(warm_up=WARM_UP), NUM_UPDATES + 1)
    assert rates == pytest.approx(WANTED, abs=1e-5)
    without = advance(*made(warm_up=0.0, final_share=0.1), NUM_UPDATES + 1)
    assert without[0] == 1.0 and without[5] == pytest.approx(0.55) and without[10] == 0.1


def test_a_restored_schedule_continues():
    whole = advance(*made(warm_up=0.5), NUM_UPDATES)
    first, interrupted = made(warm_up=0.5)
    advance(first, interrupted, 3)
    optimizer, schedule = made(warm_up=0.5)
    optimizer.load_state_dict(first.state_dict())
    schedule.load_state_dict(interrupted.state_dict())
    assert advance(optimizer, schedule, NUM_UPDATES - 3) == whole[3:]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"warm_up": 1.5}, "warm_up: 1.5 is not between 0 and 1"),
        ({"warm_up": -0.1}, "warm_up: -0.1 is not between 0 and 1"),
        ({"final_share": 2.0}, "final_share: 2.0 is not between 0 and 1"),
    ],
)
def test_bad_shares_are_refused(options, says):
    with pytest.raises(ValueError, match=f"^{says}"):
        made(**options)


def test_a_run_without_end_is_refused():
    _, schedule = made()
    with pytest.raises(ValueError, match=r"^trainer.max_epochs: without one the run has no end"):
        schedule.fall_over(math.inf)


@pytest.mark.long
def test_an_interrupted_run_has_the_rates_of_a_whole_one(tmp_path: Path, policy: Path):
    schedule = {
        "class_path": "experiments.real_aha.schedule.WarmedCosine",
        "init_args": {"warm_up": 0.5},
    }
    change = {
        "model": {"init_args": {"lr_scheduler": schedule}},
        "data": {"init_args": {"num_iterations": 4, "validation": None}},
        "trainer": {"val_check_interval": 1.0, "limit_val_batches": 0},
    }
    whole, broken = (grpo_config(tmp_path / n, policy, change) for n in ("whole", "broken"))
    main(["fit", "-c", str(whole)])
    stop = [{"class_path": "test_real_aha_schedule.StopAt", "init_args": {"iteration": 2}}]
    with pytest.raises(RuntimeError, match="stopped"):
        main(["fit", "-c", str(broken), "--trainer.callbacks+", json.dumps(stop)])
    main(["fit", "-c", str(broken), "--ckpt_path", "last"])
    rates = [learning_rates(tmp_path / name) for name in ("whole", "broken")]
    assert len(rates[0]) == 4 and rates[0] == rates[1]
    assert rates[0][0] > rates[0][-1] == 0.0
    assert weights(tmp_path / "whole").keys() == weights(tmp_path / "broken").keys()
    for name, value in weights(tmp_path / "whole").items():
        assert torch.equal(value, weights(tmp_path / "broken")[name]), name


def learning_rates(run: Path) -> list[float]:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["train/learning_rate"] for line in lines]


def weights(run: Path) -> dict[str, torch.Tensor]:
    state = torch.load(run / "checkpoints" / "last.ckpt", weights_only=False)
    return state["state_dict"]
