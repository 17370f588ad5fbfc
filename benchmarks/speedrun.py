"""The speedrun: seconds of training from the shipped base to a held-out pass@1, over three seeds.

Objective and hyper-parameters are those of ``configs/mini/r1_zero.yaml``; evaluation is off the
clock. The sides train by turns, each in a process of its own: r1lit and the peer with the first
seed, then with the next. The target is met between two evaluations; the time is read off the line
from one to the other, so that neither side gains by where its evaluations fall.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks import peers
from benchmarks.context import Context
from benchmarks.results import Entry, Stepper, of_numbers
from benchmarks.suite_training import OURS, PEER, THEIRS
from benchmarks.work import Precision, Work
from benchmarks.worker import Worker
from experiments.architectures import MINI

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


def train_until(
    worker: Stepper, target: float, max_iterations: int, show: Callable[[str], None]
) -> dict[str, Any]:
    """Make iterations until an evaluation reaches ``target``; return the seconds to the target.

    These lie on the line between the last two evaluations; the first has none before it.

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
            _, times, accuracies = zip(*curve[-2:], strict=True)
            met = float(np.interp(target, accuracies, times))
            return {"seconds": met, "iterations": iteration, "curve": curve}
    raise ValueError(f"pass@1 {target} was not reached in {max_iterations} iterations: {curve}")


def speedrun(context: Context) -> list[Entry]:
    """Train both sides to the target with every seed; tiny runs stop after one iteration."""
    target, max_iterations, every = TARGET, MAX_ITERATIONS, EVALUATE_EVERY
    if context.tiny:
        target, max_iterations, every = 0.0, 1, 1
    seeds = SEEDS[:1] if context.tiny else SEEDS
    theirs = peers.TRL_GRPO_MINI
    shipped = speedrun_work(peers.TRL_GRPO_MINI_PRECISION)
    sides: dict[str, tuple[str, dict[str, Any]]] = {"r1lit": (OURS, {}), "TRL": (THEIRS, theirs)}
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in sides}
    for seed in seeds:
        work = replace(shipped, seed=seed)
        for name, (function, settings) in sides.items():
            context.show(f"{name}, seed {seed}")
            with Worker(function, work=work, evaluate_every=every, **settings) as side:
                runs[name].append(train_until(side, target, max_iterations, context.show))
    mine, their_seconds = ([run["seconds"] for run in of_side] for of_side in runs.values())
    return [
        of_numbers(
            mine,
            their_seconds,
            work=f"speedrun: shipped base to held-out pass@1 {target:g}, {len(seeds)} seeds",
            model="mini",
            peer=PEER,
            goal=5.0,
            unit="s",
            repeats=len(seeds),
            seeds=list(seeds),
            runs_ours=runs["r1lit"],
            runs_theirs=runs["TRL"],
            settings=shipped.describe() | {"trl": theirs},
        )
    ]
