"""The speedrun: seconds of training from the shipped base to a held-out pass@1.

Objective and hyper-parameters are those of ``configs/mini/r1_zero.yaml``; evaluation is off the
clock. Each side trains in a process of its own, one after the other: no alternation is needed over
so many iterations.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from benchmarks import ours
from benchmarks.held_out import HeldOut
from benchmarks.models import MINI
from benchmarks.results import Entry
from benchmarks.work import Precision, Work
from benchmarks.worker import Gate, Worker

CONFIG = Path(__file__).parents[1] / "configs" / "mini" / "r1_zero.yaml"
TARGET = 0.75
MAX_ITERATIONS = 48
EVALUATE_EVERY = 2


def speedrun_work(precision: Precision) -> Work:
    """Return the work that the shipped configuration describes."""
    config = yaml.safe_load(CONFIG.read_text())
    model, data = config["model"]["init_args"], config["data"]["init_args"]
    objective, optimizer = model["objective"]["init_args"], model["optimizer"]["init_args"]
    return Work(
        model=str(MINI),
        num_prompts=data["rollout"]["prompts_per_iteration"],
        group_size=data["rollout"]["group_size"],
        max_tokens=model["sampling"]["max_tokens"],
        lengths=None,
        precision=precision,
        train_batch_size=model["train_batch_size"],
        learning_rate=optimizer["lr"],
        betas=tuple(optimizer["betas"]),
        decay_updates=model["lr_scheduler"]["init_args"]["total_iters"],
        max_grad_norm=model["max_grad_norm"],
        beta=objective["beta"],
        epsilon=objective["epsilon"],
        seed=config["seed_everything"],
    )


def run_ours(gate: Gate, *, work: Work, every: int, **settings: Any) -> None:
    """Train with r1lit."""
    ours.run_iterations(gate, work=work, evaluate=HeldOut(work, every), **settings)


def run_trl(gate: Gate, *, work: Work, every: int, **settings: Any) -> None:
    """Train with TRL."""
    from benchmarks import trl_grpo

    trl_grpo.run_iterations(gate, work=work, evaluate=HeldOut(work, every), **settings)


def train_until(
    worker: Worker, target: float, max_iterations: int, show: Callable[[str], None]
) -> dict[str, Any]:
    """Make iterations until an evaluation reaches ``target``; return the seconds trained.

    Raises:
        ValueError: if it is not reached.
    """
    seconds, curve = 0.0, []
    for iteration in range(1, max_iterations + 1):
        step = worker.step()
        seconds += step["seconds"]
        if "pass_at_1" not in step:
            continue
        curve.append([iteration, round(seconds, 1), round(step["pass_at_1"], 4)])
        show(f"iteration {iteration}: {seconds:.0f} s, pass@1 {step['pass_at_1']:.3f}")
        if step["pass_at_1"] >= target:
            return {"seconds": seconds, "iterations": iteration, "curve": curve}
    raise ValueError(f"pass@1 {target} was not reached in {max_iterations} iterations: {curve}")


def speedrun(
    precision: Precision,
    trl_settings: dict[str, Any],
    show: Callable[[str], None],
    *,
    target: float = TARGET,
    max_iterations: int = MAX_ITERATIONS,
    every: int = EVALUATE_EVERY,
) -> Entry:
    """Train both sides to the target and compare."""
    work = speedrun_work(precision)
    results = {}
    for name, function, settings in (
        ("r1lit", "run_ours", {}),
        ("TRL", "run_trl", trl_settings),
    ):
        with Worker(f"benchmarks.speedrun:{function}", work=work, every=every, **settings) as side:
            show(name)
            results[name] = train_until(side, target, max_iterations, show)
    mine, theirs = results["r1lit"], results["TRL"]
    ratio = theirs["seconds"] / mine["seconds"]
    return Entry(
        work=f"speedrun: shipped base to held-out pass@1 {target:g}",
        model="mini",
        peer="TRL GRPOTrainer",
        goal=5.0,
        ratio_median=ratio,
        ratio_min=ratio,
        ratio_max=ratio,
        ours=mine["seconds"],
        theirs=theirs["seconds"],
        unit="s",
        extra={
            "repeats": 1,
            "iterations_ours": mine["iterations"],
            "iterations_theirs": theirs["iterations"],
            "curve_ours": mine["curve"],
            "curve_theirs": theirs["curve"],
            "settings": work.describe() | {"trl": trl_settings},
        },
    )
