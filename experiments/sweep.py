"""Runs a sweep: a grid of config fragments x seeds, each point one ``r1lit.cli.main([...])``.

    python -m experiments.sweep experiments/objectives/sweep.yaml [--seeds 0,1] [--dry-run]

A sweep file is data::

    base: [configs/mini/r1_zero.yaml]           # merged in order, as by repeated -c
    grid:
      objective:                                # an axis; several axes are multiplied
        grpo: {}                                # a variant: a fragment merged over the base
        dapo: {model: {init_args: {objective: {class_path: r1lit.objectives.DAPO}}}}
    seeds: [0, 1, 2]
    output: runs/objectives                     # a point lives in <output>/<variant>/seed-<seed>

A finished point leaves ``result.json`` in its folder: it is skipped as long as its config
(``point.yaml``) and what the files it names hold (``inputs.json``) stay the same, and made afresh
when they change. An interrupted point goes on from its last checkpoint.
``<output>/results.jsonl`` gathers the results of all points that are finished under the present
sweep file.

Start the command once more while it runs, and the two share the points: whoever makes a point holds
a lock on it. With one thread each (``OMP_NUM_THREADS=1``) two get more done on two cores.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml
from tqdm import tqdm

from experiments.compose import Config, merge, move_run
from experiments.fingerprint import begin, is_of
from experiments.launch import held, start
from r1lit import jsonl
from r1lit.atomic import replace_file
from r1lit.callbacks.progress import as_clock

Launch = Callable[[list[str], Path], int]
KEYS = ("base", "grid", "seeds", "output")
CONFIG = "point.yaml"


@dataclass(frozen=True, kw_only=True)
class Point:
    """One run of a sweep: a variant under a seed, its folder, and its whole config."""

    variant: str
    seed: int
    folder: Path
    config: Config

    @property
    def state(self) -> str:
        """``finished``, ``interrupted`` (to be resumed) or ``new``."""
        if self.result() is not None:
            return "finished"
        same = is_of(self.folder, CONFIG, self.config)
        return "interrupted" if same and any(self.folder.rglob("last.ckpt")) else "new"

    def result(self) -> jsonl.Record | None:
        """Return the result, if the point is finished under this very config and its inputs."""
        path = self.folder / "result.json"
        result = json.loads(path.read_text()) if path.exists() else None
        return result if result is not None and is_of(self.folder, CONFIG, self.config) else None


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A sweep file, read: the merged base and the variants as fragments over it."""

    base: Config
    variants: dict[str, list[Config]]
    seeds: list[int]
    output: Path

    def point(self, variant: str, seed: int) -> Point:
        """Return the point of a variant and a seed."""
        config = self.base
        for fragment in self.variants[variant]:
            config = merge(config, fragment)
        folder = self.output / variant / f"seed-{seed}"
        config = move_run({**config, "seed_everything": seed}, folder)
        return Point(variant=variant, seed=seed, folder=folder, config=config)

    def points(self, seeds: Sequence[int] | None = None) -> list[Point]:
        """Return all points, seed by seed: after the first seed, every variant has been seen."""
        seeds = self.seeds if seeds is None else seeds
        return [self.point(variant, seed) for seed in seeds for variant in self.variants]

    def results(self) -> list[jsonl.Record]:
        """Return the results of all points finished under this sweep file, variant by variant."""
        results = []
        for variant in self.variants:
            folders = (self.output / variant).glob("seed-*")
            for seed in sorted(int(folder.name.removeprefix("seed-")) for folder in folders):
                result = self.point(variant, seed).result()
                if result is not None:
                    results.append(result)
        return results


def read_sweep(path: Path) -> Sweep:
    """Read a sweep file.

    Raises:
        ValueError: naming the key that is unknown, missing, empty or of the wrong kind.
    """
    content = yaml.safe_load(path.read_text())
    if not isinstance(content, dict):
        raise ValueError(f"{path}: a sweep file is a mapping with {', '.join(KEYS)}")
    for key in content:
        if key not in KEYS:
            raise ValueError(f"{path}: unknown key {key!r}; a sweep file has {', '.join(KEYS)}")
    for key in KEYS:
        if not content.get(key):
            raise ValueError(f"{path}: {key} is empty or missing")
    base: Config = {}
    for name in content["base"]:
        if not Path(name).is_file():
            raise ValueError(f"{path}: base: there is no config {name!r} (from {Path.cwd()})")
        base = merge(base, yaml.safe_load(Path(name).read_text()))
    seeds = content["seeds"]
    if not all(isinstance(seed, int) and seed >= 0 for seed in seeds):
        raise ValueError(f"{path}: seeds: {seeds} are not all integers from 0")
    return Sweep(
        base=base,
        variants=_multiply(path, content["grid"]),
        seeds=seeds,
        output=Path(content["output"]),
    )


def _multiply(path: Path, grid: dict[str, dict[str, Config | None]]) -> dict[str, list[Config]]:
    for axis, variants in grid.items():
        if not variants:
            raise ValueError(f"{path}: grid.{axis} is empty; it needs a variant at least")
        for name in variants:
            if not re.fullmatch(r"[\w.-]+", str(name)):
                raise ValueError(
                    f"{path}: grid.{axis}: {name!r} cannot name a folder: letters, digits, . - _"
                )
    return {
        "+".join(str(name) for name, _ in choice): [fragment or {} for _, fragment in choice]
        for choice in itertools.product(*(variants.items() for variants in grid.values()))
    }


def in_subprocess(arguments: list[str], log: Path) -> int:
    """Call ``main(arguments)`` in a fresh interpreter, writing to ``log``; return its exit status.

    A process a point: it starts from nothing, as by hand, gives its memory back, and takes only
    itself down. It costs the seconds of an import.
    """
    code = f"from r1lit.cli import main; main({arguments!r})"
    process = start([sys.executable, "-c", code], log)
    try:
        return process.wait()
    finally:
        process.kill()


@contextmanager
def claimed(point: Point) -> Iterator[bool]:
    """Hold the lock on a point; False while another process holds it. A killed one lets go."""
    with held(point.folder.with_name(f".{point.folder.name}.lock")) as file:
        yield file is not None


def score_of(evaluation: jsonl.Record) -> tuple[str, float] | None:
    """Return what an evaluation comes to: pass@1, or a reward model's AUROC or accuracy."""
    report = evaluation.get("reward_model") or {}
    for name, value in (
        ("pass@1", evaluation["pass_at_1"]),
        ("AUROC", report.get("auroc")),
        ("accuracy", report.get("accuracy")),
    ):
        if value is not None:
            return name, value
    return None


def run_point(point: Point, launch: Launch = in_subprocess) -> jsonl.Record | None:
    """Make or finish a point and return its result; None if it failed."""
    resume = ["--ckpt_path", "last"] if point.state == "interrupted" else []
    if not resume and is_of(point.folder, CONFIG, point.config):  # begun, and without a checkpoint
        shutil.rmtree(point.folder)
    arguments = ["fit", "-c", str(begin(point.folder, CONFIG, point.config)), *resume]
    if launch(arguments, point.folder / "log.txt") != 0:
        return None
    evaluations = json.loads((point.folder / "summary.json").read_text())
    if not any(score_of(evaluation) for evaluation in evaluations):
        raise ValueError(f"{point.folder}: no evaluation was made; the base needs data.validation")
    result = {
        "variant": point.variant,
        "seed": point.seed,
        "seconds": evaluations[-1]["seconds"],
        "final": evaluations[-1],
        "best": max(evaluations, key=lambda evaluation: (score_of(evaluation) or ("", 0.0))[1]),
        "evaluations": evaluations,
    }
    replace_file(point.folder / "result.json", (json.dumps(result) + "\n").encode())
    return result


def run_sweep(
    sweep: Sweep, seeds: Sequence[int] | None = None, launch: Launch = in_subprocess
) -> list[Point]:
    """Make every unfinished point and gather the results; return the points that failed."""
    points = sweep.points(seeds)
    todo = [point for point in points if point.state != "finished"]
    num_finished = len(points) - len(todo)
    print(f"{len(points)} points: {num_finished} finished, {len(todo)} to do", flush=True)
    failed = []
    started = time.monotonic()
    with tqdm(
        total=len(points), initial=num_finished, unit="point", disable=not sys.stdout.isatty()
    ) as bar:
        for index, point in enumerate(todo):
            bar.set_description(f"{point.variant} seed {point.seed}")
            with claimed(point) as free:
                result = point.result()
                if free and result is None:
                    result = run_point(point, launch)
            if result is not None:
                name, value = score_of(result["final"]) or ("score", math.nan)
                outcome = f"{name} {value:.3f}"
                _gather(sweep)
            elif free:
                failed.append(point)
                outcome = f"FAILED, see {point.folder / 'log.txt'}"
            else:
                outcome = "left to another process"
            bar.update()
            done = len(failed) + sum(other.result() is not None for other in todo)  # by anyone
            left = (time.monotonic() - started) / max(1, done) * (len(todo) - done)
            tqdm.write(
                f"point {num_finished + index + 1}/{len(points)}  {point.variant} seed"
                f" {point.seed}  {outcome}" + (f"  {as_clock(left)} left" if done else "")
            )
            sys.stdout.flush()
    _gather(sweep)
    return failed


def _gather(sweep: Sweep) -> None:
    path = sweep.output / "results.jsonl"
    content = "".join(json.dumps(result) + "\n" for result in sweep.results()).encode()
    if not path.exists() or path.read_bytes() != content:
        replace_file(path, content)


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status: 1 if a point failed, 2 for a bad sweep file."""
    parser = argparse.ArgumentParser(prog="python -m experiments.sweep", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("sweep", type=Path, help="the sweep file")
    parser.add_argument("--seeds", help="instead of the file's, for example 0,1")
    parser.add_argument("--dry-run", action="store_true", help="only list the points")
    options = parser.parse_args(args)
    try:
        sweep = read_sweep(options.sweep)
        seeds = None if options.seeds is None else [int(seed) for seed in options.seeds.split(",")]
        if options.dry_run:
            for point in sweep.points(seeds):
                print(f"{point.state:<12} {point.folder}")
            return 0
        return 1 if run_sweep(sweep, seeds) else 0
    except ValueError as error:
        print(f"sweep: error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
