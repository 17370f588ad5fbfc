"""Measured steps of the study: labels of steps and their errors, and choosing among responses.

    python -m experiments.process_rewards.measure labels models/mini DIRECTORY [--short]
    python -m experiments.process_rewards.measure choosing models/mini DIRECTORY --models DIRECTORY

``labels`` samples responses of the policy to training problems and, from each step's end, N
completions; it writes the tables that models learn from, and of responses to other problems how
wrong labels are by N. ``choosing`` takes one of n responses to held-out problems by each model. An
interrupted step goes on.

K steps
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from experiments.launch import command_line, reported
from experiments.process_rewards.choosing import (
    OUTCOME,
    Choice,
    accuracies,
    best,
    mean_over_models,
    vote,
)
from experiments.process_rewards.solutions import (
    Sampled,
    bound_engine,
    count_right,
    generate,
    true_labels,
    write_tables,
)
from experiments.sweep import seeds_in
from r1lit.batches import Problem, Response
from r1lit.files import Record, write_records
from r1lit.rewards import ProcessReward, RewardModel
from r1lit.rollout import RolloutEngine, Sampling
from r1lit.search.scorers import UNGRADED
from r1lit.text.scored_text import AGGREGATES
from r1lit.worlds import WorldCountdown

SAMPLING = Sampling(temperature=1.0, max_tokens=400)


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much of everything: problems and responses to each, and completions of a step."""

    train: tuple[int, int] = (150, 8)
    completions: int = 8
    truth: tuple[int, int] = (40, 1)
    truth_completions: int = 256
    label_sizes: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    held_out: tuple[int, int] = (96, 16)
    rerank_sizes: tuple[int, ...] = (1, 2, 4, 8, 16)


SHORT = Size(
    train=(8, 4), completions=2, truth=(4, 1), truth_completions=8, label_sizes=(1, 4),
    held_out=(4, 4), rerank_sizes=(1, 4),
)  # fmt: skip


def problems(split: str, skip: int, num: int) -> list[Problem]:
    """Return ``num`` problems of a split, after the first ``skip``."""
    source = WorldCountdown(split, skip + num, min_attempts=24, max_attempts=40)  # type: ignore[arg-type]
    return source.problems()[skip:]


def measure_labels(engine: RolloutEngine, size: Size, output: Path) -> None:
    """Write the training tables, and the errors of labels by N.

    The last step of a response is left out of the errors: its label is the verdict, at any N.
    """
    num, each = size.train
    groups = generate(engine, problems("train", 0, num), each, SAMPLING, output / "train.jsonl")
    solutions = [sampled.solution for own in groups for sampled in own]
    counts = count_right(engine, solutions, SAMPLING, size.completions, output / "counts.jsonl")
    write_tables(engine, solutions, counts, size.completions, output / "tables")

    chosen = problems("train", num, size.truth[0])
    groups = generate(engine, chosen, size.truth[1], SAMPLING, output / "truth.jsonl", seed=1)
    solutions = [sampled.solution for own in groups for sampled in own]

    def soft(n: int, first: int, name: str) -> np.ndarray:
        path = output / f"{name}.jsonl"
        counts = count_right(engine, solutions, SAMPLING, n, path, first)
        return np.array([count / n for own in counts for count in own[:-1]])

    value_K = soft(size.truth_completions, 0, "truth_counts")
    estimates, first = {}, size.truth_completions
    for n in size.label_sizes:
        estimates[n] = soft(n, first, f"counts_{n}")
        first += n
    true_K = np.array([x for solution in solutions for x in true_labels(engine, solution)[:-1]])
    sizes = {"num_steps": len(value_K), "num_truth": size.truth_completions}
    errors = label_errors(estimates, value_K, size.truth_completions, true_K)
    write_records(output / "errors.jsonl", [{**row, **sizes} for row in errors])


def label_errors(
    estimates: dict[int, np.ndarray], value_K: np.ndarray, num_truth: int, may_lead_K: np.ndarray
) -> list[Record]:
    """Return a row for each N.

    ``rmse`` is the root mean squared difference of the soft label from the value, ``expected`` what
    binomial noise alone makes of it: sqrt(mean of v (1 - v) (1/N + 1/num_truth)), v (1 - v) without
    bias from the value's own completions. ``hard`` and ``soft`` are the shares of steps whose hard
    label, or whose soft label rounded, says what is true of them; ``optimistic`` are steps that
    cannot lead to the answer with a hard label of 1.

    Args:
        estimates: soft labels of the steps by N.
        value_K: the steps' values, from ``num_truth`` other completions.
        num_truth: that number.
        may_lead_K: 1 where a step may still lead to the answer (``first_wrong_step``).
    """
    spread = float((value_K * (1 - value_K)).mean()) * num_truth / max(1, num_truth - 1)
    true_K = may_lead_K > 0.5
    rows = []
    for n, soft_K in sorted(estimates.items()):
        hard_K = soft_K > 0
        rows.append({
            "n": n,
            "rmse": math.sqrt(float(((soft_K - value_K) ** 2).mean())),
            "expected": math.sqrt(spread * (1 / n + 1 / num_truth)),
            "hard": float((hard_K == true_K).mean()),
            "soft": float(((soft_K >= 0.5) == true_K).mean()),
            "optimistic": float(hard_K[~true_K].mean()) if (~true_K).any() else math.nan,
        })  # fmt: skip
    return rows


def measure_choosing(engine: RolloutEngine, size: Size, output: Path, models: Path) -> None:
    """Write accuracies by method and n, the mean over the models' seeds."""
    num, each = size.held_out
    asked = problems("held_out", 0, num)
    groups = generate(engine, asked, each, SAMPLING, output / "held_out.jsonl", seed=2)
    right = [[sampled.solution.is_right for sampled in own] for own in groups]
    by_seed = [
        accuracies(right, choices(models, seed, groups), size.rerank_sizes)
        for seed in seeds_in(models / "orm")
    ]
    rows = [mean_over_models(rows) for rows in zip(*by_seed, strict=True)]
    write_records(output / "accuracies.jsonl", rows)


def choices(
    models: Path, seed: int, groups: Sequence[Sequence[Sampled]]
) -> dict[str, list[Choice]]:
    """Return each method's choice for each problem."""
    answers = [[sampled.canonical for sampled in own] for own in groups]
    made = {"majority": [vote(own, [1.0] * len(own)) for own in answers]}
    responses = [
        Response(text=sampled.text, problem=sampled.solution.problem, verdict=UNGRADED,
                 num_tokens=len(sampled.solution.token_ids), finished=True)
        for own in groups for sampled in own
    ]  # fmt: skip

    def by_problem(scores: Sequence[float]) -> list[list[float]]:
        left = iter(scores)
        return [[next(left) for _ in own] for own in groups]

    def votes(scores: Sequence[Sequence[float]]) -> list[Choice]:
        return [vote(a, own) for a, own in zip(answers, scores, strict=True)]

    def folder(variant: str) -> str:
        return str(models / variant / f"seed-{seed}" / "policy")

    outcome = by_problem(RewardModel(folder("orm"))(responses))
    made[OUTCOME] = [best(own) for own in outcome]
    # a vote is not below 0
    made[f"{OUTCOME}, vote"] = votes([torch.tensor(own).sigmoid().tolist() for own in outcome])
    for variant in ("prm-soft", "prm-hard", "prm-exact"):
        steps = [found.rewards for found in ProcessReward(folder(variant)).steps(responses)]
        for name, combine in AGGREGATES.items():
            scores = by_problem([combine(own) if own else 0.0 for own in steps])
            made[f"{variant}, {name}"] = [best(own) for own in scores]
            if name == "last":
                made[f"{variant}, vote"] = votes(scores)
    truth = [[float(sampled.solution.is_right) for sampled in own] for own in groups]
    made["verifier (pass@n)"] = [best(own) for own in truth]
    return made


@reported("process_rewards")
def main(args: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status, 2 for bad input."""
    parser = command_line("experiments.process_rewards.measure", __doc__)
    parser.add_argument("step", choices=("labels", "choosing"))
    parser.add_argument("policy", help="samples the responses")
    parser.add_argument("output", type=Path)
    parser.add_argument("--models", type=Path, help="the sweep's folder, of choosing")
    parser.add_argument("--short", action="store_true", help="a few minutes: does it run?")
    options = parser.parse_args(args)
    size, engine = SHORT if options.short else Size(), bound_engine(options.policy)
    if options.step == "labels":
        measure_labels(engine, size, options.output)
    else:
        measure_choosing(engine, size, options.output, options.models)
    return 0


if __name__ == "__main__":
    sys.exit(main())
