"""The speedrun: seconds of training from the shipped base to a held-out pass@1, over three seeds.

Objective and hyper-parameters are those of ``configs/mini/r1_zero.yaml``; evaluation is off the
clock. The sides train by turns, each in a process of its own: r1lit and the peer with the first
seed, then with the next. The target is met between two evaluations; the time is read off the line
from one to the other, so that neither side gains by where its evaluations fall.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from benchmarks import ours
from benchmarks.held_out import HeldOut
from benchmarks.models import MINI
from benchmarks.results import Entry
from benchmarks.timing import ratios
from benchmarks.work import Precision, Work
from benchmarks.worker import Gate, Worker

CONFIG = Path(__file__).parents[1] / "configs" / "mini" / "r1_zero.yaml"
TARGET = 0.75
MAX_ITERATIONS = 48
EVALUATE_EVERY = 2
SEEDS = (0, 1, 2)


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
    """Make iterations until an evaluation reaches ``target``; return the seconds to the target.

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
            met = seconds_to(target, [(s, accuracy) for _, s, accuracy in curve])
            return {"seconds": met, "iterations": iteration, "curve": curve}
    raise ValueError(f"pass@1 {target} was not reached in {max_iterations} iterations: {curve}")


def seconds_to(target: float, curve: Sequence[tuple[float, float]]) -> float:
    """Return when a line through seconds and accuracies first meets ``target``.

    Before the first evaluation there is no line: what meets it there takes all of its seconds.

    >>> seconds_to(0.75, [(10.0, 0.65), (20.0, 0.85)])
    15.0
    >>> seconds_to(0.75, [(10.0, 0.8)])
    10.0
    """
    before: tuple[float, float] | None = None
    for seconds, accuracy in curve:
        if accuracy >= target:
            if before is None:
                return seconds
            share = (target - before[1]) / (accuracy - before[1])
            return before[0] + share * (seconds - before[0])
        before = seconds, accuracy
    raise ValueError(f"curve: {target} is not met")


def speedrun(
    precision: Precision,
    trl_settings: dict[str, Any],
    show: Callable[[str], None],
    *,
    target: float = TARGET,
    max_iterations: int = MAX_ITERATIONS,
    every: int = EVALUATE_EVERY,
    seeds: Sequence[int] = SEEDS,
) -> Entry:
    """Train both sides to the target with every seed, and compare."""
    shipped = speedrun_work(precision)
    runs: dict[str, list[dict[str, Any]]] = {"r1lit": [], "TRL": []}
    for seed in seeds:
        work = replace(shipped, seed=seed)
        for name, function, settings in (
            ("r1lit", "run_ours", {}),
            ("TRL", "run_trl", trl_settings),
        ):
            target_of = f"benchmarks.speedrun:{function}"
            with Worker(target_of, work=work, every=every, **settings) as side:
                show(f"{name}, seed {seed}")
                runs[name].append(train_until(side, target, max_iterations, show))
    mine, theirs = ([run["seconds"] for run in runs[name]] for name in ("r1lit", "TRL"))
    return Entry(
        work=f"speedrun: shipped base to held-out pass@1 {target:g}, {len(seeds)} seeds",
        model="mini",
        peer="TRL GRPOTrainer",
        goal=5.0,
        unit="s",
        **ratios(mine, theirs, memory=False),
        extra={
            "repeats": len(seeds),
            "seeds": list(seeds),
            "runs_ours": runs["r1lit"],
            "runs_theirs": runs["TRL"],
            "settings": shipped.describe() | {"trl": trl_settings},
        },
    )
