"""A sweep on a cluster: every point is a task of one job array, submitted by submitit.

    python -m experiments objectives --launcher submitit \
        --job timeout_min=600 gpus_per_node=1 cpus_per_task=8 slurm_partition=gpu

The command waits for the tasks and reports them as a sweep on one machine does. Stopped, it leaves
them running; started again, it waits for those that still run and submits what is neither finished
nor running. An unfinished point goes on from its last checkpoint.

No lock is taken, since not every file system holds one against other machines: a point belongs to
the task whose number stands beside its folder, ``.seed-<seed>.job``. Folders lie where all machines
see them. ``--cluster local`` runs the tasks on this machine, all at once, to try it out.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.fingerprint import begin
from experiments.launch import error_in
from experiments.sweep import CONFIG, ERROR, Point, Sweep, gather, outcome_of, run_point
from r1lit.files import Record, replace_file

POLL_S = 1.0
TIMEOUT_MIN = 24 * 60
"""Minutes that a task may take, if ``--job timeout_min=…`` says nothing else."""


def submit_sweep(
    sweep: Sweep, seeds: Sequence[int] | None, cluster: str | None, settings: Sequence[str]
) -> list[Point]:
    """Submit every point that is neither finished nor running; return the points that failed.

    Args:
        sweep: the sweep file, read.
        seeds: instead of the file's.
        cluster: ``slurm`` or ``local``; what submitit finds if left out.
        settings: ``KEY=VALUE`` of ``submitit.AutoExecutor.update_parameters``; a value is JSON or
            else a text.

    Raises:
        ValueError: if submitit is not installed, or refuses ``cluster`` or ``settings``, or if a
            task that still runs makes a point as the sweep file was before.
    """
    folder = sweep.output.absolute() / ".submitit"
    executor = _executor(folder, cluster, settings)
    points = sweep.points(seeds)
    todo = [point for point in points if point.state != "finished"]
    waiting = [(point, job) for point in todo if (job := _running(point, executor)) is not None]
    new = [point for point in todo if not any(point is other for other, _ in waiting)]
    num_finished = len(points) - len(todo)
    print(
        f"{len(points)} points: {num_finished} finished, {len(waiting)} running, {len(new)} to"
        f" submit; logs in {folder}",
        flush=True,
    )
    if new:
        for point, job in zip(new, executor.map_array(run_point, new), strict=True):
            replace_file(_marker(point), job.job_id.encode())
            waiting.append((point, job))
    failed = []
    while waiting:
        for point, job in [(point, job) for point, job in waiting if job.done()]:
            waiting = [(other, task) for other, task in waiting if other is not point]
            result = _result(point, job)
            if result is None:
                failed.append(point)
            num_finished += result is not None
            outcome = f"FAILED: {point.error()}" if result is None else outcome_of(result)
            print(f"job {job.job_id}  {point.variant} seed {point.seed}  {outcome}", flush=True)
            gather(sweep)
        time.sleep(POLL_S if waiting else 0)
    return failed


def _executor(folder: Path, cluster: str | None, settings: Sequence[str]) -> Any:
    try:
        import submitit
    except ImportError as error:
        raise ValueError(
            "--launcher: submitit is not installed; pip install 'r1lit[sweep]'"
        ) from error
    parameters: dict[str, Any] = {"timeout_min": TIMEOUT_MIN, "name": "r1lit-sweep"}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise ValueError(f"--job: {setting!r} is not KEY=VALUE, as timeout_min=600")
        try:
            parameters[key] = json.loads(value)
        except ValueError:
            parameters[key] = value
    try:
        executor = submitit.AutoExecutor(folder=folder, cluster=cluster)
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"--cluster: {cluster}: {error}") from error
    try:
        executor.update_parameters(**parameters)
    except (AssertionError, NameError, TypeError, ValueError) as error:
        raise ValueError(f"--job: {' '.join(str(error).split())}") from error
    return executor


def _marker(point: Point) -> Path:
    return point.folder.with_name(f".{point.folder.name}.job")


def _running(point: Point, executor: Any) -> Any:
    """Return the job of an earlier start that still makes a point; None if there is none.

    Raises:
        ValueError: if it makes the point as the sweep file was before.
    """
    marker = _marker(point)
    if executor.cluster != "slurm" or not marker.exists():
        return None
    import submitit

    job: Any = submitit.SlurmJob(folder=executor.folder, job_id=marker.read_text())
    if job.done(force_check=True):
        return None
    [old] = job.submission().args
    if old.config != point.config:
        raise ValueError(
            f"{point.variant} seed {point.seed}: job {job.job_id} still makes it as the sweep file"
            f" was before; cancel it (scancel {job.job_id}), or start again once it has ended"
        )
    return job


def _result(point: Point, job: Any) -> Record | None:
    """Return the result of a job that has ended; None, with the point's error written, if none."""
    if job.exception() is None:
        return job.result()
    log = job.paths.stderr
    error = f"job {job.job_id} has ended without a result ({job.state}), see {log}"
    if job.paths.result_pickle.exists():
        error = error_in(log, 1)
    begin(point.folder, CONFIG, point.config)
    replace_file(point.folder / ERROR, f"{error}\n".encode())
    return None
