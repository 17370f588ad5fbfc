"""Makes the points of a sweep, config fragments x seeds: each one ``r1lit.cli.main([...])``.

A finished point leaves ``result.json`` in its folder: it is skipped as long as its config
(``point.yaml``) and what the files it names hold (``inputs.json``) stay the same, and made afresh
when they change. An interrupted point goes on from its last checkpoint.
``<output>/results.jsonl`` gathers the results of all points that are finished under the present
sweep file.

Two processes share the points: whoever makes a point holds a lock on it. With one thread each
(``OMP_NUM_THREADS=1``) two get more done on two cores.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml
from tqdm import tqdm

from experiments.compose import Config
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
from experiments.points import (
    CONFIG,
    ERROR,
    RESULT,
    Point,
    Sweep,
    best_of,
    score_of,
    shares_of,
)
from r1lit.callbacks.progress import as_clock
from r1lit.files import Record, replace_file, write_records

BAR_S = 1.0  # between two looks at a log


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
    from r1lit.cli import main  # takes seconds

    with TemporaryDirectory() as folder:
        file = Path(folder) / "point.yaml"
        file.write_text(yaml.safe_dump(point.config))
        printed, errors = StringIO(), StringIO()
        try:
            with redirect_stdout(printed), redirect_stderr(errors):
                main(["fit", "-c", str(file), "--print_config"])
        except ValueError as error:
            raise ValueError(f"{point.variant}: {error}") from error
        except SystemExit as end:
            if end.code:
                raise ValueError(f"{point.variant}: {errors.getvalue().strip()}") from end
    config: Config = yaml.safe_load(printed.getvalue())
    return config
