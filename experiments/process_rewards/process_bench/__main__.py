"""Trains process reward models on ProcessBench and reports how well they find first errors.

    python -m experiments.process_rewards.process_bench process_bench.jsonl.gz

Solutions of GSM8K and of MATH, a model each, held out by problem, seed by seed, from
configs/reward/process.yaml. Bodies are made from the training texts alone; ``--policy`` names a
pretrained one for two models more. Finished runs are skipped, an interrupted one goes on.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.command import reported
from experiments.compose import Config
from experiments.points import Sweep, parse_seeds
from experiments.process_rewards.process_bench.report import write_report
from experiments.reward_models.body import make_body, training_texts
from experiments.sweep import Launch, in_subprocess, run_sweep
from r1lit.cli import composition
from r1lit.data import TableSteps

HERE = Path(__file__).parent
CONFIG = HERE.parents[2] / "configs" / "reward" / "process.yaml"
NUM_GSM8K = 400
ROWS: dict[str, Config] = {
    "GSM8K": {"limit": NUM_GSM8K},
    "MATH": {"skip": NUM_GSM8K},
}
"""Which rows of the file: GSM8K's come first."""


def sweep_of(path: str, output: Path, seeds: Sequence[int], policy: str | None = None) -> Sweep:
    """Return the sweep: a variant for each of ``ROWS``, two where a policy is given.

    Raises:
        ValueError: if the file cannot be read.
    """
    preset, scratch = (composition.read(str(path)) for path in (CONFIG, HERE / "scratch.yaml"))
    variants: dict[str, list[Config]] = {}
    for name, rows in ROWS.items():
        source = {"class_path": "r1lit.data.TableSteps", "init_args": {"path": path, **rows}}
        data = {"data": {"init_args": {"train": [source], "max_tokens": 2048}}}
        texts = training_texts(TableSteps(path, **rows), preset["data"]["init_args"])
        body = make_body(texts, output / "bodies")
        variants[name] = [preset, data, scratch, of_policy(str(body))]
        if policy is not None:
            variants[f"{name}-pretrained"] = [preset, data, of_policy(policy)]
    return Sweep(base={}, variants=variants, seeds=list(seeds), output=output)


def of_policy(policy: str) -> Config:
    """Return the fragment that names a body."""
    return {"model": {"init_args": {"policy": policy}}}


@reported("process_bench")
def main(args: Sequence[str] | None = None, launch: Launch = in_subprocess) -> int:
    """Run the command; return its exit status: 1 if a run failed, 2 for a bad file."""
    parser = argparse.ArgumentParser(prog="python -m experiments.process_rewards.process_bench")
    parser.description = __doc__
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("path", help="process_bench.jsonl.gz")
    parser.add_argument("--policy", help="a pretrained policy, for two models more")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--output", type=Path, default=Path("runs/process_bench"))
    parser.add_argument("--report", type=Path, default=HERE, help="folder of README.md")
    options = parser.parse_args(args)
    seeds = parse_seeds(options.seeds)
    sweep = sweep_of(options.path, options.output, seeds, options.policy)
    failed = run_sweep(sweep, launch=launch)
    if results := sweep.results():
        print(write_report(results, options.report))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
