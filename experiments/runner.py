"""Runs a pipeline: finished steps are skipped, interrupted ones go on, changed ones begin anew."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import yaml
from tqdm import tqdm

from experiments.display import Display, as_score
from experiments.fingerprint import fingerprint
from experiments.launch import last_lines, progress_of, start
from experiments.manifest import (
    Decision,
    Entry,
    Manifest,
    now,
    reads_of,
    scores_of,
    tokens_of,
)
from experiments.pipeline import Pipeline, Step, overlap
from experiments.sweep import read_configs
from r1lit.files import held, remove, replace_file

POLL_S = 0.2
HEARTBEAT_S = 5.0
GRACE_S = 10.0
ORPHAN_S = 60.0


class Failed(Exception):
    """A step ended with an error, or did not write what it should."""


def run_pipeline(
    pipeline: Pipeline,
    *,
    begin: str | None = None,
    only: Sequence[str] = (),
    display: Display | None = None,
) -> int:
    """Make every step that is not finished, in order; return the exit status.

    Args:
        pipeline: what to run.
        begin: a step or stage; it and all later steps are made anew, or, with ``only``, those of
            them that ``only`` names.
        only: steps or stages; the others are left as they are.
        display: shows the run.

    Raises:
        ValueError: for an unknown step, a missing input, or another runner on the same folder.
    """
    chosen, forced = _chosen(pipeline, begin, only)
    display = display or Display(pipeline.steps)
    pipeline.run.mkdir(parents=True, exist_ok=True)
    with held(pipeline.run / ".runner.lock") as lock:
        if lock is None:
            raise ValueError(f"run: another runner is at work on {pipeline.run}")
        manifest = Manifest.load(pipeline)
        with display:
            for step in pipeline.steps:
                try:
                    if step.name in chosen:
                        _make(manifest, step, step.name in forced, display)
                    else:
                        _leave(manifest, step, display)
                except Failed as failure:
                    _report(manifest.entries[step.name], failure, display)
                    return 1
    return 0


def check_configs(todo: Sequence[tuple[Pipeline, Sequence[Step]]]) -> None:
    """Read the configuration of each step: a mistyped key must not wait for the steps before it.

    Steps that differ in the seed and the run folder alone are read once.

    Raises:
        ValueError: if one is refused; it names the pipeline's file, the step and the key.
    """
    different: dict[str, tuple[str, Step]] = {}
    for pipeline, steps in todo:
        for step in steps:
            configs = [{**config, "seed_everything": 0} for config in step.configs]
            text = json.dumps([step.command, configs, step.arguments], default=str)
            key = text.replace(str(pipeline.run), "")
            different.setdefault(key, (f"{pipeline.path}: step {step.name}", step))
    bar = tqdm(
        different.values(), "reading configurations", leave=False, disable=not sys.stderr.isatty()
    )
    for where, step in bar:
        if step.command is not None:
            read_configs(step.command, step.configs, where, step.arguments)


def unfinished(
    pipeline: Pipeline, begin: str | None = None, only: Sequence[str] = ()
) -> list[Step]:
    """Return the steps that a run would make or might make."""
    verdicts = verdicts_of(pipeline, begin, only)
    return [step for step, verdict in verdicts if verdict not in ("finished", "left out")]


def verdicts_of(
    pipeline: Pipeline, begin: str | None = None, only: Sequence[str] = ()
) -> list[tuple[Step, str]]:
    """Return what a run would do with each step, as far as the files tell now."""
    manifest = Manifest.load(pipeline)
    chosen, forced = _chosen(pipeline, begin, only)
    touched: set[str] = set()
    plan = []
    for step in pipeline.steps:
        decision = manifest.decide(step, forced=step.name in forced)
        waits_for = ", ".join(name for name in step.needs if name in touched)
        known = manifest.entries.get(step.name, {}).get("config") == step.digest
        if step.name not in chosen:
            verdict = "left out"
        elif waits_for and known and step.name not in forced:
            verdict = f"after {waits_for}, if something else comes out"
        else:
            verdict = f"{decision.verdict}  {decision.why}".strip()
        if step.name in chosen and verdict != "finished":
            touched.add(step.name)
        plan.append((step, verdict))
    return plan


def words_of(step: Step, run: Path, *, resume: bool) -> list[str]:
    """Return the command of a step, whose configs are in ``<run>/configs/<step>/``."""
    if step.module is not None:
        return [sys.executable, "-m", step.module, *step.arguments]
    assert step.command is not None
    command = [sys.executable, "-m", "r1lit.cli", step.command]
    for path in _config_paths(step, run):
        command += ["-c", str(path)]
    command += step.arguments
    return [*command, "--ckpt_path", "last"] if resume and step.command == "fit" else command


def _config_paths(step: Step, run: Path) -> list[Path]:
    return [run / "configs" / step.name / f"{index}.yaml" for index in range(len(step.configs))]


def _write_configs(step: Step, run: Path) -> None:
    for path, config in zip(_config_paths(step, run), step.configs, strict=True):
        replace_file(path, yaml.safe_dump(config, sort_keys=False, allow_unicode=True).encode())


def _chosen(
    pipeline: Pipeline, begin: str | None, only: Sequence[str]
) -> tuple[set[str], set[str]]:
    """Return the steps that are wanted, and those of them that are made anew."""
    steps = pipeline.steps
    chosen = {step.name for step in (pipeline.chosen(only, "--only") if only else steps)}
    if begin is None:
        return chosen, set()
    first = steps.index(pipeline.chosen([begin], "--from")[0])
    return chosen, {step.name for step in steps[first:]} & chosen


def _leave(manifest: Manifest, step: Step, display: Display) -> None:
    entry = manifest.entries.get(step.name)
    if entry is not None:
        row = display.rows[step.name]
        row.seconds, row.score = entry["cost"]["seconds"], as_score(entry["scores"])
    display.rows[step.name].state = "left out"


def _make(manifest: Manifest, step: Step, forced: bool, display: Display) -> None:
    for name in step.needs:
        if manifest.entries.get(name, {}).get("state") != "finished":
            raise ValueError(f"step {step.name} needs {name}, which is not finished: make it first")
    for path in step.reads:
        if not path.exists():
            raise ValueError(f"step {step.name}: reads: there is no {path}")
    decision = manifest.decide(step, forced=forced)
    row = display.rows[step.name]
    if decision.verdict == "finished":
        entry = manifest.entries[step.name]
        row.seconds, row.score = entry["cost"]["seconds"], as_score(entry["scores"])
        display.change(step.name, "unchanged")
        return
    with held(manifest.path.with_name(f".{step.name}.lock"), wait_s=ORPHAN_S) as lock:
        if lock is None:
            raise ValueError(f"step {step.name}: a process of an earlier start still works on it")
        entry = _begin(manifest, step, decision)
        display.change(step.name, "running", why=_said(decision))
        status = _run(manifest, step, lock, display)
    if status != 0:
        entry["state"] = "failed"
        manifest.save()
        raise Failed(f"it ended with status {status}")
    for path in step.writes:
        entry["writes"][str(path)] = fingerprint(path)
    missing = [path for path, digest in entry["writes"].items() if digest is None]
    if missing:
        entry["state"] = "failed"
        manifest.save()
        raise Failed(f"it ended well but did not write {', '.join(missing)}")
    entry["state"], entry["finished"] = "finished", now()
    entry["cost"]["tokens"] = tokens_of(step.folder)
    entry["scores"] = scores_of(step.folder, step.scores)
    manifest.save()
    row.score = as_score(entry["scores"])
    display.change(step.name, "finished")


def _begin(manifest: Manifest, step: Step, decision: Decision) -> Entry:
    """Write the entry of a step that starts, having cleared what it must not go on from."""
    if decision.verdict == "anew":
        manifest.entries[step.name] |= {"state": "clearing", "why": decision.why}
        manifest.save()
        _clear(manifest.pipeline, step)
    old = manifest.entries.get(step.name) if decision.verdict == "resume" else None
    _write_configs(step, manifest.pipeline.run)
    entry: Entry = {
        "name": step.name,
        "stage": step.stage,
        "state": "running",
        "why": decision.why,
        "command": shlex.join(
            words_of(step, manifest.pipeline.run, resume=decision.verdict == "resume")
        ),
        "config": step.digest,
        "reads": reads_of(step),
        "needs": manifest.needs_of(step),
        "writes": {},
        "started": old["started"] if old else now(),
        "finished": None,
        "cost": {
            "seconds": old["cost"]["seconds"] if old else 0.0,
            "tokens": None,
            "attempts": old["cost"]["attempts"] + 1 if old else 1,
        },
        "scores": {},
        "log": str(manifest.pipeline.run / "logs" / f"{step.name}.log"),
    }
    manifest.entries[step.name] = entry
    manifest.save()
    return entry


def _clear(pipeline: Pipeline, step: Step) -> None:
    """Remove what a step has written in the run folder, and its folder if nobody else's."""
    paths = [path for path in step.writes if path != pipeline.run]
    others = [other for other in pipeline.steps if other is not step]
    if step.folder is not None and not any(
        overlap(step.folder, path)
        for other in others
        for path in (*other.writes, *([other.folder] if other.folder else []))
    ):
        paths.append(step.folder)
    for path in paths:
        if path.is_relative_to(pipeline.run) and path != pipeline.run:
            remove(path)


def _run(manifest: Manifest, step: Step, lock: IO[str], display: Display) -> int:
    """Run the command to its end and return its exit status, keeping manifest and tree fresh."""
    entry, row = manifest.entries[step.name], display.rows[step.name]
    log = Path(entry["log"])
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as file:
        file.write(f"# {now()} {entry['command']}\n")
    offset = log.stat().st_size
    before, began = entry["cost"]["seconds"], time.monotonic()
    saved = began
    process = start(shlex.split(entry["command"]), log, keep=[lock])
    try:
        while process.poll() is None:
            time.sleep(POLL_S)
            clock = time.monotonic()
            row.seconds = entry["cost"]["seconds"] = round(before + clock - began, 1)
            progress = progress_of(log, offset)
            if progress is not None:
                row.share, row.status = progress
            if clock - saved >= HEARTBEAT_S:
                manifest.save()
                saved = clock
            display.refresh()
    except BaseException:
        _end(process)
        entry["state"] = "interrupted"
        manifest.save()
        display.change(step.name, "interrupted")
        raise
    return process.returncode


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a step and the processes that it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
            return


def _said(decision: Decision) -> str:
    verb = {"anew": "anew", "resume": "goes on"}.get(decision.verdict, "")
    return f"{verb}: {decision.why}" if decision.why else verb


def _report(entry: Entry, failure: Failed, display: Display) -> None:
    display.change(entry["name"], "failed", why=str(failure))
    for line in last_lines(Path(entry["log"])):
        display.say(f"    {line}")
    display.say(f"log: {entry['log']}")
    display.say(f"to repeat it: {entry['command']}")
