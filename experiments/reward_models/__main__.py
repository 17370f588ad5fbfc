"""Trains the helpful and the safety reward model on real data, from configs/reward, seed by seed.

    python -m experiments.reward_models hh_harmless_base_test.jsonl.gz xstest_prompts.csv

The first table holds pairs of conversations (Anthropic's HH), the second labelled prompts (XSTest).
Bodies are made from the training texts alone (``body.py``); ``--policy`` names a pretrained policy
to make two more models of. Finished runs are skipped, an interrupted one goes on. At the end the
table of README.md and reward_models.png are made from all that is finished.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.command import reported
from experiments.compose import Config
from experiments.points import Sweep, parse_seeds
from experiments.reward_models.body import make_body, training_texts
from experiments.reward_models.report import write_report
from experiments.sweep import Launch, in_subprocess, run_sweep
from r1lit.cli import composition
from r1lit.data import TableLabels, TablePairs

HERE = Path(__file__).parent
CONFIGS = HERE.parents[1] / "configs" / "reward"
SOURCES = {"helpful": TablePairs, "safety": TableLabels}


def sweep_of(
    tables: dict[str, str], output: Path, seeds: Sequence[int], policy: str | None = None
) -> Sweep:
    """Return the sweep: a variant for each table, and another one where a policy is given.

    Args:
        tables: the path for each of ``SOURCES``.
        output: the folder of the runs, and of the bodies.
        seeds: of initial weights and order; the held-out examples are the same for all.
        policy: a Hugging Face directory or a model on the Hub.

    Raises:
        ValueError: if a table cannot be read.
    """
    variants: dict[str, list[Config]] = {}
    for name, path in tables.items():
        config = composition.read(str(CONFIGS / f"{name}.yaml"))
        source = config["data"]["init_args"]["train"][0]
        source = {**source, "init_args": {**source["init_args"], "path": path}}
        data = {"data": {"init_args": {"train": [source]}}}
        texts = training_texts(SOURCES[name](**source["init_args"]), config["data"]["init_args"])
        body = make_body(texts, output / "bodies")
        variants[name] = [config, data, {"model": {"init_args": {"policy": str(body)}}}]
    if policy is not None:
        other: Config = {"model": {"init_args": {"policy": policy}}}
        variants |= {
            f"{name}-pretrained": [
                *variants[name],
                composition.read(str(HERE / "pretrained.yaml")),
                other,
            ]
            for name in tables
        }
    return Sweep(base={}, variants=variants, seeds=list(seeds), output=output)


@reported("reward_models")
def main(args: Sequence[str] | None = None, launch: Launch = in_subprocess) -> int:
    """Run the command; return its exit status: 1 if a run failed, 2 for a bad table."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.reward_models",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("pairs", help="a table of chosen and rejected conversations")
    parser.add_argument("labels", help="a table of prompts labelled safe or unsafe")
    parser.add_argument("--policy", help="a pretrained policy, for two models more")
    parser.add_argument("--seeds", default="0,1,2,3,4")
    parser.add_argument("--output", type=Path, default=Path("runs/reward_models"))
    parser.add_argument("--report", type=Path, help="folder of README.md; --output if left out")
    options = parser.parse_args(args)
    tables = {"helpful": options.pairs, "safety": options.labels}
    seeds = parse_seeds(options.seeds)
    sweep = sweep_of(tables, options.output, seeds, options.policy)
    failed = run_sweep(sweep, launch=launch)
    if results := sweep.results():
        print(write_report(results, options.report or options.output))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
