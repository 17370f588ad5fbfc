"""Labels steps of Countdown responses, trains models on them, and chooses among responses.

    python -m experiments.process_rewards [--short]

1. Responses of the policy to training problems; from each step's end N completions: labels.
2. How wrong labels are, by N, on responses to other problems (labels.py).
3. Process models from soft labels, hard ones and exact ones, an outcome model from the same
   responses (configs/reward over prm.yaml and orm.yaml), seed by seed.
4. One of n responses to held-out problems, chosen by each (rerank.py).

Everything that is finished is kept, an interrupted part goes on; README.md gets tables and figure.
The reinforcement learning that goes with it is a sweep, in rl/.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from experiments.command import reported
from experiments.compose import Config
from experiments.fingerprint import fingerprint
from experiments.points import Sweep, parse_seeds
from experiments.process_rewards.labels import label_errors
from experiments.process_rewards.report import write_report
from experiments.process_rewards.rerank import (
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
from experiments.sweep import Launch, in_subprocess, run_sweep
from r1lit.batches import Problem, Response
from r1lit.cli import composition
from r1lit.files import Record, replace_json
from r1lit.rewards import ProcessReward, RewardModel
from r1lit.rollout import RolloutEngine, Sampling
from r1lit.search.scorers import UNGRADED
from r1lit.text.steps import AGGREGATES
from r1lit.worlds import WorldCountdown

HERE = Path(__file__).parent
CONFIGS = HERE.parents[1] / "configs" / "reward"
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


def keep_settings(output: Path, policy: str, size: Size) -> None:
    """Write what the kept responses and labels depend on; those of before have no such file.

    Raises:
        ValueError: if the folder is of other settings, or of another policy by that name.
    """
    path = output / "settings.json"
    weights = fingerprint(Path(policy))
    settings = {"policy": policy, "fingerprint": weights, **asdict(size), **asdict(SAMPLING)}
    settings = json.loads(json.dumps(settings))
    known = json.loads(path.read_text()) if path.exists() else settings
    for key in settings:
        if known.get(key) != settings[key]:
            raise ValueError(
                f"--output: {output} is of {key} {known.get(key)!r}, not {settings[key]!r}; remove"
                " it, or name another folder"
            )
    replace_json(path, settings)


def training_tables(engine: RolloutEngine, size: Size, output: Path) -> dict[str, Path]:
    """Draw the training responses, label their steps, and return the tables by kind of label."""
    num, each = size.train
    groups = generate(engine, problems("train", 0, num), each, SAMPLING, output / "train.jsonl")
    solutions = [sampled.solution for own in groups for sampled in own]
    counts = count_right(engine, solutions, SAMPLING, size.completions, output / "counts.jsonl")
    return write_tables(engine, solutions, counts, size.completions, output / "tables")


def measure_labels(engine: RolloutEngine, size: Size, output: Path) -> tuple[list[Record], int]:
    """Return the rows of the table of label errors, and how many steps they are of.

    The last step of a response is left out: its label is the verdict, at any N.
    """
    num, each = size.truth
    chosen = problems("train", size.train[0], num)
    groups = generate(engine, chosen, each, SAMPLING, output / "truth.jsonl", seed=1)
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
    return label_errors(estimates, value_K, size.truth_completions, true_K), len(value_K)


def models(tables: dict[str, Path], size: Size, policy: str, seeds: Sequence[int], output: Path
           ) -> Sweep:  # fmt: skip
    """Return the sweep of process models and the outcome model."""
    fragments = {name: composition.read(str(HERE / f"{name}.yaml")) for name in ("prm", "orm")}
    process = [composition.read(str(CONFIGS / "process.yaml")), fragments["prm"]]
    outcome = [composition.read(str(CONFIGS / "safety.yaml")), fragments["orm"]]
    change: Config = {"model": {"init_args": {"policy": policy}}}
    if size is SHORT:
        change["data"] = {"init_args": {"num_iterations": 2, "train_batch_size": 8}}

    def steps(table: str, hard: bool = False) -> Config:
        given = {"path": str(tables[table]), "joined_by": "", "hard": hard}
        source = {"class_path": "r1lit.data.TableSteps", "init_args": given}
        return {"data": {"init_args": {"train": [source]}}}

    labels = {"class_path": "r1lit.data.TableLabels", "init_args": {"path": str(tables["outcome"])}}
    variants = {
        "prm-soft": [*process, steps("soft"), change],
        "prm-hard": [*process, steps("soft", hard=True), change],
        "prm-exact": [*process, steps("exact"), change],
        "orm": [*outcome, {"data": {"init_args": {"train": [labels]}}}, change],
    }
    return Sweep(base={}, variants=variants, seeds=list(seeds), output=output)


def rerank(engine: RolloutEngine, sweep: Sweep, size: Size, output: Path) -> list[Record]:
    """Return accuracies by method and n, the mean over the models' seeds."""
    num, each = size.held_out
    groups = generate(
        engine, problems("held_out", 0, num), each, SAMPLING, output / "held_out.jsonl", seed=2
    )
    right = [[sampled.solution.is_right for sampled in own] for own in groups]
    by_seed = [
        accuracies(right, _choices(sweep, seed, groups), size.rerank_sizes) for seed in sweep.seeds
    ]
    return [mean_over_models(rows) for rows in zip(*by_seed, strict=True)]


def _choices(
    sweep: Sweep, seed: int, groups: Sequence[Sequence[Sampled]]
) -> dict[str, list[Choice]]:
    """Return each method's choice for each problem."""
    answers = [[sampled.canonical for sampled in own] for own in groups]
    made = {"majority": [vote(own, [1.0] * len(own)) for own in answers]}
    responses = [_response(sampled) for own in groups for sampled in own]

    def by_problem(scores: Sequence[float]) -> list[list[float]]:
        left = iter(scores)
        return [[next(left) for _ in own] for own in groups]

    def folder(variant: str) -> str:
        return str(sweep.point(variant, seed).folder / "policy")

    outcome = by_problem(RewardModel(folder("orm"))(responses))
    made[OUTCOME] = [best(own) for own in outcome]
    made[f"{OUTCOME}, vote"] = [
        vote(own_answers, torch.tensor(own).sigmoid().tolist())  # a vote is not below 0
        for own_answers, own in zip(answers, outcome, strict=True)
    ]
    for variant in ("prm-soft", "prm-hard", "prm-exact"):
        steps = [found.rewards for found in ProcessReward(folder(variant)).steps(responses)]
        for name, combine in AGGREGATES.items():
            scores = by_problem([combine(own) if own else 0.0 for own in steps])
            made[f"{variant}, {name}"] = [best(own) for own in scores]
            if name == "last":
                made[f"{variant}, vote"] = [
                    vote(a, own) for a, own in zip(answers, scores, strict=True)
                ]
    truth = [[float(sampled.solution.is_right) for sampled in own] for own in groups]
    made["verifier (pass@n)"] = [best(own) for own in truth]
    return made


def _response(sampled: Sampled) -> Response:
    solution = sampled.solution
    return Response(
        text=sampled.text,
        problem=solution.problem,
        verdict=UNGRADED,
        num_tokens=len(solution.token_ids),
        finished=True,
    )


@reported("process_rewards")
def main(args: Sequence[str] | None = None, launch: Launch = in_subprocess) -> int:
    """Run the command; return its exit status: 1 if a training failed, 2 for bad input."""
    parser = argparse.ArgumentParser(prog="python -m experiments.process_rewards")
    parser.description = __doc__
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--policy", default="models/mini", help="draws responses; the models' base")
    parser.add_argument("--seeds", default="0,1,2", help="of the models")
    parser.add_argument("--output", type=Path, default=Path("runs/process_rewards"))
    parser.add_argument("--report", type=Path, default=HERE, help="where README.md lies")
    parser.add_argument("--short", action="store_true", help="a few minutes: does it run?")
    options = parser.parse_args(args)
    seeds = parse_seeds(options.seeds)
    size, output = (SHORT if options.short else Size()), options.output
    keep_settings(output, options.policy, size)
    engine = bound_engine(options.policy)
    errors, num_steps = measure_labels(engine, size, output)
    tables = training_tables(engine, size, output)
    sweep = models(tables, size, options.policy, seeds, output / "models")
    if run_sweep(sweep, launch=launch, wait=True):
        return 1
    rows = rerank(engine, sweep, size, output)
    truth, results = size.truth_completions, [r for r in sweep.results() if r["seed"] in seeds]
    where, policy = options.report, options.policy
    print(write_report(errors, num_steps, truth, results, rows, where, policy))
    return 0


if __name__ == "__main__":
    sys.exit(main())
