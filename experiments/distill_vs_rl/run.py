"""Runs the experiment: for every seed and arm, train the student, then draw responses and judge.

    python -m experiments.distill_vs_rl.run experiments/distill_vs_rl/experiment.yaml [--seeds 0,1]

An experiment file is data::

    student: models/mini_student       # the small base, {student} in the arms' configs
    documents: runs/r1/.../sft.jsonl   # the teacher's responses, {documents} there
    output: runs/distill_vs_rl         # a run lives in <output>/<arm>/seed-<seed>
    seeds: [0, 1, 2]
    evaluation: [evaluate.yaml]        # configs of r1lit test, merged in order
    arms:
      distilled: {base: [distilled.yaml]}
      rl: {base: [rl.yaml], compute_of: distilled}    # ends when it has computed as much

The student as it is, untrained, is an arm of its own, ``base``. An arm may have an ``evaluation``
fragment, merged over the evaluation's config. Interrupted, the same command goes on: a training
from its last checkpoint, an evaluation with the responses that are missing. A run whose config has
changed, or what the files that it names hold, is made afresh. Started once more while it runs, the
two share the seeds.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.command import reported
from experiments.compose import Config, as_mapping, check_keys, merge, merged, move_run
from experiments.fingerprint import begin, is_of
from experiments.points import checked_seeds, folder_name, parse_seeds, seeds_in
from experiments.sweep import Launch, claimed, in_subprocess, printed
from r1lit.cli import composition

KEYS = {
    "student": str, "documents": str, "output": str, "seeds": list, "evaluation": list,
    "arms": dict,
}  # fmt: skip
BASE = "base"
COMPUTE, REPORT = "compute.json", "report.json"
TRAINING, TEST = "training.yaml", "evaluation.yaml"
COUNT = "experiments.distill_vs_rl.compute.ComputeCount"


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """An experiment file, read: configs are merged and their placeholders filled in."""

    student: str
    output: Path
    seeds: list[int]
    evaluation: Config
    arms: dict[str, Config]
    compute_of: dict[str, str]
    changes: dict[str, Config]

    def folder(self, arm: str, seed: int) -> Path:
        """Return the folder of a run."""
        return self.output / arm / f"seed-{seed}"

    def training(self, arm: str, seed: int) -> Config:
        """Return the config of a training.

        Raises:
            ValueError: if the run whose compute it shall equal is not finished.
        """
        folder = self.folder(arm, seed)
        config = move_run({**self.arms[arm], "seed_everything": seed}, folder)
        count: Config = {"path": str(folder / COMPUTE)}
        if arm in self.compute_of:
            path = self.folder(self.compute_of[arm], seed) / COMPUTE
            if not path.exists():
                raise ValueError(f"compute_of: {path} is not there: that run is not finished")
            count["limit"] = json.loads(path.read_text())["flops"]
        counter = {"class_path": COUNT, "init_args": count}
        return merge(config, {"trainer": {"callbacks+": [counter]}})

    def test(self, arm: str, seed: int) -> Config:
        """Return the config of an evaluation; its seed is the run's."""
        folder = self.folder(arm, seed)
        policy = self.student if arm == BASE else str(folder / "policy")
        where = {"policy": policy, "dirpath": str(folder / "evaluation")}
        own = {"seed_everything": seed, "model": {"init_args": where}}
        return merge(self.evaluation, self.changes.get(arm, {}), own)

    def results(self) -> list[dict[str, Any]]:
        """Return the results of all runs finished under this very file, arm by arm."""
        found = []
        for arm in (BASE, *self.arms):
            for seed in seeds_in(self.output / arm):
                folder = self.folder(arm, seed)
                tested = folder / "evaluation"
                if not (arm == BASE or self._is_trained(arm, seed)):
                    continue
                if (tested / REPORT).exists() and is_of(tested, TEST, self.test(arm, seed)):
                    spent = json.loads((folder / COMPUTE).read_text()) if arm != BASE else None
                    report = json.loads((tested / REPORT).read_text())
                    found.append({"arm": arm, "seed": seed, "compute": spent, "report": report})
        return found

    def _is_trained(self, arm: str, seed: int) -> bool:
        needed = [self.folder(a, seed) / COMPUTE for a in (arm, self.compute_of.get(arm, arm))]
        return all(path.exists() for path in needed) and is_of(
            self.folder(arm, seed), TRAINING, self.training(arm, seed)
        )


def read_experiment(path: Path) -> Experiment:
    """Read an experiment file; paths in it are from the working directory.

    Raises:
        ValueError: naming the key that is unknown, missing or names what is not there.
    """
    content = composition.parse(str(path))
    check_keys(path, content, KEYS)
    values = {key: content[key] for key in ("student", "documents")}
    arms: dict[str, Config] = {}
    changes, compute_of = {}, {}
    for name, given in content["arms"].items():
        where = f"{path}: arms.{name}"
        folder_name(f"{path}: arms", name)
        if name == BASE:
            raise ValueError(f"{where}: name it otherwise: {BASE!r} is the student untrained")
        arm = as_mapping(where, given)
        check_keys(where, arm, {"base": list}, ("compute_of", "evaluation"))
        if arm.get("compute_of"):
            if arm["compute_of"] not in [*arms]:
                raise ValueError(f"{where}.compute_of: {arm['compute_of']!r} is no arm before it")
            compute_of[name] = arm["compute_of"]
        arms[name] = fill_in(merged(arm["base"], f"{where}.base"), values)
        changes[name] = as_mapping(f"{where}.evaluation", arm.get("evaluation"))
    return Experiment(
        student=values["student"],
        output=Path(content["output"]),
        seeds=checked_seeds(path, content["seeds"]),
        evaluation=fill_in(merged(content["evaluation"], f"{path}: evaluation"), values),
        arms=arms,
        compute_of=compute_of,
        changes=changes,
    )


def fill_in(node: Any, values: dict[str, str]) -> Any:
    """Return a config with {student} and {documents} replaced where they are a whole text.

    >>> fill_in({"policy": "{student}", "n": [1]}, {"student": "models/small"})
    {'policy': 'models/small', 'n': [1]}
    """
    if isinstance(node, dict):
        return {key: fill_in(value, values) for key, value in node.items()}
    if isinstance(node, list):
        return [fill_in(value, values) for value in node]
    if isinstance(node, str) and node[:1] == "{" and node[-1:] == "}":
        return values.get(node[1:-1], node)
    return node


def run(experiment: Experiment, seeds: Sequence[int], launch: Launch = in_subprocess) -> list[str]:
    """Make what is missing, but for seeds that another process makes; return what failed."""
    failed = []
    for seed in seeds:
        with claimed(experiment.output / f"seed-{seed}") as free:
            if not free:
                print(f"seed {seed}  left to another process", flush=True)
            elif (arm := _run_seed(experiment, seed, launch)) is not None:
                failed.append(f"{arm} seed {seed}")
    return failed


def _run_seed(experiment: Experiment, seed: int, launch: Launch) -> str | None:
    """Make a seed's arms; return the one that failed, since later ones may need its compute."""
    for arm in (BASE, *experiment.arms):
        name, folder = f"{arm} seed {seed}", experiment.folder(arm, seed)
        shown = printed(launch, name)
        trained = arm == BASE or _train(experiment, arm, seed, shown)
        if not (trained and _test(experiment, arm, seed, shown)):
            print(f"{name}  FAILED, see {folder / 'log.txt'}", flush=True)
            return arm
        report = json.loads((folder / "evaluation" / REPORT).read_text())
        print(f"{name}  pass@1 {report['pass_at_1']['value']:.3f}", flush=True)
    return None


def _train(experiment: Experiment, arm: str, seed: int, launch: Launch) -> bool:
    folder = experiment.folder(arm, seed)
    config = begin(folder, TRAINING, experiment.training(arm, seed))
    if (folder / COMPUTE).exists():
        return True
    return launch(["fit", "-c", str(config), "--ckpt_path", "last"], folder / "log.txt") == 0


def _test(experiment: Experiment, arm: str, seed: int, launch: Launch) -> bool:
    folder = experiment.folder(arm, seed) / "evaluation"
    config = begin(folder, TEST, experiment.test(arm, seed))
    if (folder / REPORT).exists():
        return True
    return launch(["test", "-c", str(config)], folder.with_name("log.txt")) == 0


@reported("distill_vs_rl")
def main(args: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status: 1 if a run failed, 2 for a bad experiment file."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.distill_vs_rl.run", description=__doc__
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("experiment", type=Path, help="the experiment file")
    parser.add_argument("--seeds", help="instead of the file's, for example 0,1")
    options = parser.parse_args(args)
    experiment = read_experiment(options.experiment)
    seeds = parse_seeds(options.seeds) if options.seeds else experiment.seeds
    return 1 if run(experiment, seeds) else 0


if __name__ == "__main__":
    sys.exit(main())
