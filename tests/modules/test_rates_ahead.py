"""The learning rates of a run are known before its first update."""

from __future__ import annotations

import re
import warnings

import pytest
import torch
from tiny import grpo_config
from torch.optim import lr_scheduler
from torch.optim.lr_scheduler import LRScheduler

from r1lit.cli import main
from r1lit.modules import CosineOverRun
from r1lit.modules.schedules import print_rates, rates_ahead

LINEAR = {"class_path": "torch.optim.lr_scheduler.LinearLR"}


def optimizer(lr: float | torch.Tensor = 0.1) -> torch.optim.AdamW:
    weight = torch.nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    return torch.optim.AdamW([weight], lr=lr)


def warmed_up(made: torch.optim.Optimizer) -> LRScheduler:
    parts = [lr_scheduler.LinearLR(made, 0.1, total_iters=3), lr_scheduler.ExponentialLR(made, 0.5)]
    return lr_scheduler.SequentialLR(made, parts, milestones=[3])


def cosine(made: torch.optim.Optimizer) -> LRScheduler:
    scheduler = CosineOverRun(made)
    scheduler.fall_over(9)
    return scheduler


SCHEDULERS = {
    "linear": lambda made: lr_scheduler.LinearLR(made, 1.0, 0.1, total_iters=9),
    "sequential": warmed_up,
    "cosine": cosine,
    "lambda": lambda made: lr_scheduler.LambdaLR(made, lambda n: 1 / (1 + n)),
    "chained": lambda made: lr_scheduler.ChainedScheduler(
        [lr_scheduler.LinearLR(made, 0.1, total_iters=3), lr_scheduler.ExponentialLR(made, 0.5)]
    ),
    "one cycle": lambda made: lr_scheduler.OneCycleLR(made, 0.3, total_steps=9),
}


@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.parametrize("num_made", [0, 2])
@pytest.mark.parametrize("lr", [0.1, torch.tensor(0.1)])
def test_they_are_those_that_updates_have(name, num_made, lr):
    made = optimizer(lr)
    scheduler = SCHEDULERS[name](made)

    def update() -> float:
        rate = float(made.param_groups[0]["lr"])
        made.step()
        scheduler.step()
        return rate

    for _ in range(num_made):
        update()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ahead = rates_ahead(scheduler, 9 - num_made)
    assert len(set(ahead)) > 3
    wanted = pytest.approx([update() for _ in ahead])  # a rate in a tensor is of float32
    assert ahead == wanted, "and finding them changed nothing"


def test_a_cosine_may_warm_up():
    scheduler = CosineOverRun(optimizer(), final_share=0.5, warmup=3)
    scheduler.fall_over(7)
    rises, falls = [0.025, 0.05, 0.075], [0.1, 0.0926776695, 0.075, 0.0573223305]
    assert rates_ahead(scheduler, 7) == pytest.approx(rises + falls)
    with pytest.raises(ValueError, match=r"^warmup: 3 updates are the whole run, which has 3; set"):
        scheduler.fall_over(3)
    with pytest.raises(ValueError, match=r"^warmup: -1 is not at least 0"):
        CosineOverRun(optimizer(), warmup=-1)


def test_a_schedule_that_ends_before_the_run_is_refused():
    scheduler = lr_scheduler.OneCycleLR(optimizer(), 0.3, total_steps=9)
    with pytest.raises(ValueError, match=r"OneCycleLR fails after update 10 of the 20 to make"):
        rates_ahead(scheduler, 20)


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (SCHEDULERS["linear"], "Learning rate over 9 updates: from 0.1 to 0.02"),
        (warmed_up, ": from 0.01 to 0.00313, highest 0.1 at update 4"),
        (lambda made: lr_scheduler.ConstantLR(made, 1.0), ": 0.1\n"),
    ],
)
def test_they_are_printed(make, line, capsys, recwarn):
    print_rates(make(optimizer()), 9)
    assert line in capsys.readouterr().out and not recwarn


def test_only_those_to_come_are_printed(capsys):
    made = optimizer()
    scheduler = SCHEDULERS["chained"](made)
    for _ in range(4):
        made.step()
        scheduler.step()
    print_rates(scheduler, 9)
    assert "Learning rate over 5 updates: from 0.00625 to" in capsys.readouterr().out


@pytest.mark.parametrize("num_updates", [float("inf"), 0, 10**6])
def test_of_runs_of_no_known_length_nothing_is_printed(num_updates, capsys):
    print_rates(SCHEDULERS["linear"](optimizer()), num_updates)
    print_rates(lr_scheduler.ReduceLROnPlateau(optimizer()), 9)
    assert not capsys.readouterr().out


def test_a_warm_up_that_keeps_the_end_of_another_file_is_warned_of(tmp_path, policy, capsys):
    """The arguments of two configurations of one class add up."""
    below = LINEAR | {"init_args": {"start_factor": 1.0, "end_factor": 0.1, "total_iters": 6}}
    config = grpo_config(
        tmp_path / "run", policy,
        {"model": {"init_args": {"lr_scheduler": below}},
         "data": {"init_args": {"num_iterations": 2}}},
    )  # fmt: skip
    with pytest.warns(UserWarning, match=r"^model.lr_scheduler: LinearLR keeps .* at 0.001 or"):
        main(["fit", "-c", str(config), "--model.lr_scheduler.start_factor", "0.1"])
    out = capsys.readouterr().out
    assert re.search(r"^Learning rate over \d updates: 0.001$", out, re.MULTILINE), out
