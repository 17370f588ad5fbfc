"""A sweep: a grid of config fragments x seeds, each point one ``r1lit.cli.main([...])``.

A point lives in ``<output>/<variant>/seed-<seed>``. There, ``result.json`` says that it is
finished, ``error.txt`` how it failed; both count only while its config (``point.yaml``) and what
the files it names hold (``inputs.json``) stay the same. A finished point is skipped, and made
afresh when they change; an interrupted one goes on from its last checkpoint.
``<output>/results.jsonl`` gathers the results of all points that are finished under the present
sweep file.

Two processes share the points: whoever makes a point holds a lock on it. With one thread each
(``OMP_NUM_THREADS=1``) two get more done on two cores.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from tqdm import tqdm

from experiments.compose import (
    Config,
    as_mapping,
    check_keys,
    fill_in,
    merge,
    merged,
    move_evaluation,
    move_run,
)
from experiments.fingerprint import begin, is_of
from experiments.launch import (
    LINE_S,
    PEAK_MEMORY,
    Launch,
    claimed,
    error_in,
    in_subprocess,
    shown,
)
from r1lit.callbacks.progress import as_clock
from r1lit.cli import composition
from r1lit.evaluation.compare import shares_right
from r1lit.files import Record, replace_file, write_records

KEYS = {"grid": dict, "seeds": list, "output": str}
COMMANDS = ("fit", "test")
OF_A_STUDY = (
    "arguments", "figure", "known_by", "labels", "model", "note", "readme", "report", "table",
)  # fmt: skip
"""Keys of a study that say nothing of its runs (`experiments.study`)."""
ONLY = "only"
"""Key of a fragment: by axis, the variants that it is combined with; all if left out."""
BASE = "base"
"""Key of a grid, and of a fragment: files that are merged in order, as by repeated -c."""
CONFIG = "point.yaml"
RESULT = "result.json"
ERROR = "error.txt"
VALIDATION = ("validation", "validation_documents")
BAR_S = 1.0  # between two looks at a log


@dataclass(frozen=True, kw_only=True)
class Point:
    """One run of a sweep: a variant under a seed, its folder, and its whole config."""

    variant: str
    seed: int
    folder: Path
    config: Config
    command: str = "fit"

    @property
    def state(self) -> str:
        """``finished``, ``interrupted`` (to be resumed) or ``new``."""
        if self.result() is not None:
            return "finished"
        begun = "last.ckpt" if self.command == "fit" else "responses.jsonl"
        same = is_of(self.folder, CONFIG, self.config)
        return "interrupted" if same and any(self.folder.rglob(begun)) else "new"

    def result(self) -> Record | None:
        """Return the result, if the point is finished under this very config and its inputs."""
        path = self.folder / RESULT
        result = json.loads(path.read_text()) if path.exists() else None
        return result if result is not None and is_of(self.folder, CONFIG, self.config) else None

    def error(self) -> str | None:
        """Return how the point failed, in one line, if that was under this very config."""
        path = self.folder / ERROR
        if not path.exists() or not is_of(self.folder, CONFIG, self.config):
            return None
        return path.read_text().strip()


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A grid, read: the merged base and the variants as fragments over it.

    ``command`` is what a point runs: ``fit``, or ``test`` of a policy that is there. ``labels`` and
    ``model`` are what its figure calls variants and the policy they begin with.
    """

    base: Config
    variants: dict[str, list[Config]]
    seeds: list[int]
    output: Path
    command: str = "fit"
    labels: dict[str, str] = field(default_factory=dict)
    model: str = ""

    def folder(self, variant: str, seed: int) -> Path:
        """Return the run folder of a variant and a seed."""
        return self.output / variant / f"seed-{seed}"

    def point(self, variant: str, seed: int) -> Point:
        """Return the point of a variant and a seed."""
        folder = self.folder(variant, seed)
        config = merge(self.base, *self.variants[variant], {"seed_everything": seed})
        move = move_run if self.command == "fit" else move_evaluation
        return Point(variant=variant, seed=seed, folder=folder, config=move(config, folder),
                     command=self.command)  # fmt: skip

    def points(self, seeds: Sequence[int] | None = None) -> list[Point]:
        """Return all points, seed by seed: after the first seed, every variant has been seen."""
        seeds = self.seeds if seeds is None else seeds
        return [self.point(variant, seed) for seed in seeds for variant in self.variants]

    def made(self) -> list[Point]:
        """Return the points that have a folder, of the file's seeds and others, by variant."""
        points = []
        for variant in self.variants:
            points += [self.point(variant, seed) for seed in seeds_in(self.output / variant)]
        return points

    def results(self) -> list[Record]:
        """Return the results of all points finished under this sweep file, variant by variant."""
        found = (point.result() for point in self.made())
        return [result for result in found if result is not None]

    def runs(self) -> list[tuple[Record, Path]]:
        """Return the same, each with its run folder."""
        return [(r, self.folder(r["variant"], r["seed"])) for r in self.results()]

    def finished(self) -> list[tuple[Record, Path]]:
        """Return the same.

        Raises:
            ValueError: if no point is finished.
        """
        runs = self.runs()
        if not runs:
            raise ValueError(f"{self.output}: no point is finished yet")
        return runs


def seeds_in(folder: Path) -> list[int]:
    """Return the seeds that have a folder ``seed-<seed>`` here, in order."""
    names = (own.name for own in folder.glob("seed-*"))
    return sorted(int(name[5:]) for name in names if re.fullmatch(r"seed-\d+", name))


def shares_of(run: Path) -> dict[str, float] | None:
    """Return by problem the share right in a run's last evaluation; None if it kept no response."""
    try:
        return shares_right(run)
    except ValueError:
        return None


def parse_seeds(text: str) -> list[int]:
    """Return the seeds that a command line names.

    >>> parse_seeds("0,1")
    [0, 1]

    Raises:
        ValueError: if it does not, or names one twice.
    """
    names = [name.strip() for name in text.split(",")]
    if not all(name.isascii() and name.isdigit() for name in names):
        raise ValueError(f"--seeds: {text!r} is not integers from 0 with commas between, as 0,1,2")
    seeds = [int(name) for name in names]
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"--seeds: {text!r} names a seed twice, which would count for two runs")
    return seeds


def checked_seeds(path: Path, seeds: object) -> list[int]:
    """Return the seeds that a file names.

    Raises:
        ValueError: if they are not a list of integers from 0, each once.
    """
    if (
        not isinstance(seeds, list)
        or not seeds
        or not all(type(seed) is int and seed >= 0 for seed in seeds)
        or len(set(seeds)) < len(seeds)
    ):
        raise ValueError(f"{path}: seeds: {seeds!r} is not a list of integers from 0, each once")
    return seeds


def folder_name(where: str, name: object) -> str:
    """Return the name of a variant, a step or the like, which names a folder too.

    Raises:
        ValueError: naming ``where``, if it cannot.
    """
    if not isinstance(name, str) or not re.fullmatch(r"[\w.-]+", name) or name in (".", ".."):
        raise ValueError(
            f"{where}: {name!r} cannot name a folder: wanted is a text of letters, digits, . - _"
            " other than . and .."
        )
    return name


def read_sweep(
    path: Path, step: str | None = None, values: dict[str, str | None] | None = None
) -> Sweep:
    """Read a grid from a YAML file.

    Args:
        path: of a file that is one grid, or of a study with steps.
        step: the study's step; may be left out where it has one grid alone.
        values: of the study's arguments. A variant that names one that is None is left out.

    Raises:
        ValueError: naming the key that is unknown, missing, empty or of the wrong kind.
    """
    content = composition.parse(str(path))  # a base by r1lit: name is read by it, below
    own = _grid_in(path, content, step)
    for name, given in (values or {}).items():
        if given is None:
            own["grid"] = _without(own.get("grid"), f"{{{name}}}")
    own = fill_in(own, values or {})
    check_keys(path, own, KEYS, (BASE, "command"))
    command = own.get("command", "fit")
    if command not in COMMANDS:
        raise ValueError(f"{path}: command: {command!r} is not one of {', '.join(COMMANDS)}")
    sweep = Sweep(
        base=merged(own.get(BASE, []), f"{path}: {BASE}"),
        variants=_multiply(path, composition.resolved(own["grid"])),
        seeds=checked_seeds(path, own["seeds"]),
        output=Path(own["output"]),
        command=command,
        labels=as_mapping(f"{path}: labels", content.get("labels")),
        model=str(content.get("model", "")),
    )
    for variant in sweep.variants if command == "fit" else ():
        where = f"{path}: {variant}: data"
        data = as_mapping(where, sweep.point(variant, sweep.seeds[0]).config.get("data"))
        arguments = as_mapping(f"{where}.init_args", data.get("init_args"))
        held_out = [arguments.get(key) for key in VALIDATION]
        if str(data.get("class_path")).endswith("R1DataModule") and not any(held_out):
            raise ValueError(
                f"{path}: {variant}: {' and '.join(f'data.{key}' for key in VALIDATION)} are empty,"
                " and a sweep compares evaluations: give one of them"
            )
    return sweep


def _grid_in(path: Path, content: Config, step: str | None) -> Config:
    """Return the keys of a file's grid; of one with steps those of the step."""
    if "steps" not in content:
        return {key: value for key, value in content.items() if key not in OF_A_STUDY}
    grids = {s.get("name"): s for s in content["steps"] if isinstance(s, dict) and "grid" in s}
    name = step if step is not None or len(grids) != 1 else next(iter(grids))
    if name not in grids:
        known = ", ".join(map(str, grids)) or "none"
        raise ValueError(f"{path}: {name!r} is no step with a grid; those are {known}")
    own = {"seeds": content.get("seeds"), **grids[name]}
    return {key: value for key, value in own.items() if key not in ("name", "stage")}


def _without(grid: Any, placeholder: str) -> Any:
    """Return the grid without the variants that hold a placeholder."""
    if not isinstance(grid, dict):
        return grid
    return {
        axis: {k: v for k, v in own.items() if placeholder not in json.dumps(v, default=str)}
        if isinstance(own, dict) else own
        for axis, own in grid.items()
    }  # fmt: skip


def _multiply(path: Path, grid: dict[str, dict[object, Any]]) -> dict[str, list[Config]]:
    axes: dict[str, dict[str, Config]] = {}
    for axis, variants in grid.items():
        where = f"{path}: grid.{axis}"
        if not variants or not isinstance(variants, dict):
            raise ValueError(f"{where}: {variants!r} is not a mapping: variants by name")
        own = axes.setdefault(axis, {})
        for name, fragment in variants.items():
            text = folder_name(where, str(name))  # it may be a number
            if text in own:
                raise ValueError(f"{where}: {name!r} is there as a number and as a text")
            own[text] = as_mapping(f"{where}.{name}", fragment)
    for axis, own in axes.items():
        for name, fragment in own.items():
            _check_only(f"{path}: grid.{axis}.{name}.{ONLY}", fragment.get(ONLY, {}), axes)
    choices = [
        dict(zip(axes, choice, strict=True))
        for choice in itertools.product(*(own.items() for own in axes.values()))
    ]
    return {
        "+".join(name for name, _ in choice.values()): [
            merge(
                merged(fragment.get(BASE, []), f"{path}: {name}: {BASE}"),
                {key: value for key, value in fragment.items() if key not in (BASE, ONLY)},
            )
            for name, fragment in choice.values()
        ]
        for choice in choices
        if all(
            choice[axis][0] in names
            for _, fragment in choice.values()
            for axis, names in fragment.get(ONLY, {}).items()
        )
    }


def _check_only(where: str, only: Any, axes: dict[str, dict[str, Config]]) -> None:
    for axis, names in as_mapping(where, only).items():
        known = [*axes.get(axis, ())]
        if not isinstance(names, list) or not all(name in known for name in names):
            raise ValueError(f"{where}.{axis}: {names!r} is not a list of {', '.join(known)}")


def score_of(evaluation: Record) -> tuple[str, float] | None:
    """Return what an evaluation comes to: pass@1, a reward model's AUROC or accuracy, or a loss."""
    report = evaluation.get("reward_model") or {}
    for name, value in (
        ("pass@1", evaluation.get("pass_at_1")),
        ("AUROC", report.get("auroc")),
        ("accuracy", report.get("accuracy")),
        ("loss", evaluation.get("loss")),
    ):
        if value is not None:
            return name, value
    return None


def best_of(evaluations: Sequence[Record]) -> Record:
    """Return the evaluation of the best score, the earliest of equals: a loss is best when low."""

    def height(evaluation: Record) -> float:
        name, value = score_of(evaluation) or ("", -math.inf)
        return -value if name == "loss" else value

    return max(evaluations, key=height)


def run_point(point: Point, launch: Launch = in_subprocess) -> Record | None:
    """Make or finish a point and return its result; None if it failed."""
    resume = ["--ckpt_path", "last"] if point.state == "interrupted" else []
    if point.command == "test":  # which goes on with the responses that are missing
        resume = []
    elif not resume and is_of(point.folder, CONFIG, point.config):  # begun, without a checkpoint
        shutil.rmtree(point.folder)
    arguments = [point.command, "-c", str(begin(point.folder, CONFIG, point.config)), *resume]
    log, error = point.folder / "log.txt", point.folder / ERROR
    error.unlink(missing_ok=True)
    status = launch(arguments, log)
    if status != 0:
        replace_file(error, (error_in(log, status) + "\n").encode())
        return None
    result = {"variant": point.variant, "seed": point.seed, **_measured(point)}
    replace_file(point.folder / RESULT, (json.dumps(result) + "\n").encode())
    return result


def _measured(point: Point) -> Record:
    """Return what the files of a point that has ended say."""
    shares = shares_of(point.folder)
    if point.command == "test":
        report = json.loads((point.folder / "report.json").read_text())
        final = {"pass_at_1": report["pass_at_1"]["value"]}
        return {"final": final, "report": report, "shares": shares}
    evaluations = json.loads((point.folder / "summary.json").read_text())
    if not any(score_of(evaluation) for evaluation in evaluations):
        raise ValueError(f"{point.folder}: no evaluation was made; the base needs data.validation")
    measured = {
        "seconds": evaluations[-1]["seconds"],
        "final": evaluations[-1],
        "best": best_of(evaluations),
        "evaluations": evaluations,
        "shares": shares,
    }
    peak = point.folder / PEAK_MEMORY
    if peak.exists():
        measured["peak_memory_gb"] = int(peak.read_text()) / 1e9
    return measured


def run_sweep(
    sweep: Sweep,
    seeds: Sequence[int] | None = None,
    launch: Launch = in_subprocess,
    wait: bool = False,
) -> list[Point]:
    """Make every unfinished point and gather the results; return the points that failed.

    Points that another process makes are left to it or, with ``wait``, waited for.
    """
    points = sweep.points(seeds)
    todo = [point for point in points if point.state != "finished"]
    num_finished = len(points) - len(todo)
    print(f"{len(points)} points: {num_finished} finished, {len(todo)} to do", flush=True)
    failed, others = [], []
    started = time.monotonic()
    with tqdm(
        total=len(points),
        initial=num_finished,
        bar_format="{desc}{n_fmt}/{total_fmt}{postfix}",  # room for a run's status line
        disable=not sys.stdout.isatty(),
    ) as bar:
        for index, point in enumerate(todo):
            bar.set_description(f"{point.variant} seed {point.seed}")
            with claimed(point.folder) as free:
                result = point.result()
                if free and result is None:
                    result = run_point(point, _shown(launch, bar, point))
            if result is not None:
                outcome = outcome_of(result)
                gather(sweep)
            elif free:
                failed.append(point)
                outcome = f"FAILED: {point.error()}"
            else:
                others.append(point)
                outcome = "left to another process"
            bar.update()
            done = len(failed) + sum(other.result() is not None for other in todo)  # by anyone
            left = (time.monotonic() - started) / max(1, done) * (len(todo) - done)
            tqdm.write(
                f"point {num_finished + index + 1}/{len(points)}  {point.variant} seed"
                f" {point.seed}  {outcome}" + (f"  {as_clock(left)} left" if done else "")
            )
            sys.stdout.flush()
        for point in others if wait else ():
            tqdm.write(f"waiting for another process to make {point.variant} seed {point.seed}")
            sys.stdout.flush()
            with claimed(point.folder, wait_s=math.inf):  # made here where the other process failed
                shown = _shown(launch, bar, point)
                if point.result() is None and run_point(point, shown) is None:
                    failed.append(point)
    gather(sweep)
    return failed


def _shown(launch: Launch, bar: tqdm, point: Point) -> Launch:
    """Return ``launch`` with the status of its run shown: behind a bar, else a line a minute."""
    if not bar.disable:
        return shown(launch, bar.set_postfix_str, BAR_S)
    name = f"{point.variant} seed {point.seed}"
    return shown(launch, lambda status: print(f"{name}  {status}", flush=True), LINE_S)


def outcome_of(result: Record) -> str:
    """Return what a finished point came to, in a few words."""
    name, value = score_of(result["final"]) or ("score", math.nan)
    return f"{name} {value:.3f}"


def gather(sweep: Sweep) -> None:
    """Write the results of all finished points to ``results.jsonl``."""
    write_records(sweep.output / "results.jsonl", sweep.results())


def list_points(sweep: Sweep, seeds: Sequence[int] | None = None) -> None:
    """Print every point with its state.

    Raises:
        ValueError: if a variant's config is refused; it names the variant and the key.
    """
    points = sweep.points(seeds)
    check_variants(points)
    for point in points:
        print(f"{point.state:<12} {point.folder}", flush=True)


def check_variants(points: Sequence[Point]) -> None:
    """Read the config of each variant once: a mistyped key must not wait for the runs before it.

    Raises:
        ValueError: if a config is refused; it names the variant and the key.
    """
    for point in {point.variant: point for point in points}.values():
        read_config(point)


def read_config(point: Point) -> Config:
    """Return a point's whole config, defaults included, as ``r1lit fit`` reads it.

    Raises:
        ValueError: if it is refused.
    """
    return read_configs("fit", [point.config], point.variant)


def read_configs(
    command: str, configs: Sequence[Config], where: str, arguments: Sequence[str] = ()
) -> Config:
    """Return the whole config of a command of ``r1lit``, defaults included, as it reads it.

    Raises:
        ValueError: naming ``where``, if it is refused.
    """
    from r1lit.cli import main  # takes seconds

    with TemporaryDirectory() as folder:
        words = [command]
        for index, own in enumerate(configs):
            file = Path(folder) / f"{index}.yaml"
            file.write_text(yaml.safe_dump(own))
            words += ["-c", str(file)]
        printed, errors = StringIO(), StringIO()
        try:
            with redirect_stdout(printed), redirect_stderr(errors):
                main([*words, *arguments, "--print_config"])
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
        except SystemExit as end:
            if end.code:
                raise ValueError(f"{where}: {errors.getvalue().strip()}") from end
    config: Config = yaml.safe_load(printed.getvalue())
    return config
