"""The manifest of a pipeline's run: what each step read, wrote, cost and scored, and its state."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from experiments.compose import value_at
from experiments.fingerprint import fingerprint
from experiments.pipeline import Pipeline, Step
from r1lit.files import read_records, replace_json

NAME = "manifest.json"
Entry = dict[str, Any]
Verdict = Literal["finished", "resume", "new", "anew"]


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What is to become of a step, and why."""

    verdict: Verdict
    why: str = ""


@dataclass
class Manifest:
    """``<run>/manifest.json``, written whole after every change.

    An entry has ``state`` (clearing, running, interrupted, failed, finished), ``config`` (digest),
    ``reads`` and ``writes`` (path to digest), ``needs`` (step to a digest of what it wrote),
    ``started``, ``finished``, ``cost`` (``seconds`` over all attempts, ``tokens``, ``attempts``),
    ``scores``, ``command``, ``log`` and ``why``. A kill between two writes leaves ``running``,
    which the next start reads as interrupted.
    """

    path: Path
    pipeline: Pipeline
    entries: dict[str, Entry] = field(default_factory=dict)

    @staticmethod
    def load(pipeline: Pipeline) -> Manifest:
        """Read the manifest of a pipeline's run folder, empty where there is none."""
        path = pipeline.run / NAME
        return Manifest(path, pipeline, _read(path))

    def save(self) -> None:
        """Write the file, the pipeline's steps first."""
        order = {step.name: index for index, step in enumerate(self.pipeline.steps)}
        entries = sorted(self.entries.values(), key=lambda e: order.get(e["name"], len(order)))
        content = {
            "pipeline": str(self.pipeline.path),
            "run": str(self.pipeline.run),
            "seed": self.pipeline.seed,
            "steps": entries,
        }
        replace_json(self.path, content)

    def decide(self, step: Step, *, forced: bool = False) -> Decision:
        """Say what is to become of a step, from its entry and the files as they are now."""
        entry = self.entries.get(step.name)
        if entry is None:
            return Decision(verdict="new")
        if forced:
            return Decision(verdict="anew", why="asked for")
        if entry["config"] != step.digest:
            return Decision(verdict="anew", why="its configuration has changed")
        changed = _difference(entry["reads"], reads_of(step)) or _difference(
            entry["needs"], self.needs_of(step), "what step {} wrote"
        )
        if changed:
            return Decision(verdict="anew", why=changed)
        if entry["state"] == "clearing":
            return Decision(verdict="anew", why=entry["why"])
        if entry["state"] != "finished":
            return Decision(verdict="resume", why=f"it was {_past(entry['state'])}")
        for path in step.writes:
            now = fingerprint(path)
            if now is None:
                return Decision(verdict="anew", why=f"{path} is missing")
            if now != entry["writes"].get(str(path)):
                return Decision(verdict="anew", why=f"{path} is not what it wrote")
        return Decision(verdict="finished")

    def needs_of(self, step: Step) -> dict[str, str | None]:
        """Return a digest of what each needed step wrote last, by name."""
        return {
            name: _digest(self.entries[name]["writes"]) if name in self.entries else None
            for name in step.needs
        }


def finished_steps(run: Path) -> set[str]:
    """Return the names of the steps that a run folder's manifest says are finished."""
    return set(seconds_by_step(run))


def seconds_by_step(run: Path) -> dict[str, float]:
    """Return what each finished step of a run folder's manifest cost, over all its attempts."""
    entries = _read(run / NAME).items()
    return {name: e["cost"]["seconds"] for name, e in entries if e["state"] == "finished"}


def _read(path: Path) -> dict[str, Entry]:
    if not path.is_file():
        return {}
    try:
        return {entry["name"]: entry for entry in json.loads(path.read_text())["steps"]}
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: not a manifest of this runner ({error!r})") from error


def reads_of(step: Step) -> dict[str, str | None]:
    """Return the digests of what a step reads, by path."""
    return {str(path): fingerprint(path) for path in step.reads}


def _digest(writes: dict[str, str | None]) -> str:
    return hashlib.blake2b(json.dumps(writes, sort_keys=True).encode(), digest_size=8).hexdigest()


def now() -> str:
    """Return the time, UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _past(state: str) -> str:
    return "interrupted" if state == "running" else state


def _difference(old: dict[str, Any], new: dict[str, Any], form: str = "{}") -> str:
    for key in {**old, **new}:
        what = form.format(key)
        if key not in old:
            return f"it reads {what} now"
        if key not in new:
            return f"it reads {what} no more"
        if old[key] != new[key]:
            return f"{what} has changed"
    return ""


def tokens_of(folder: Path | None) -> int | None:
    """Return the tokens a step sampled or was trained on, or None if its folder does not say.

    Of a training run, the sum of ``train/num_tokens`` over iterations (response tokens in
    reinforcement learning, targets in supervised training); of an evaluation, its responses'.
    """
    if folder is None:
        return None
    if (folder / "metrics.jsonl").is_file():
        lines = read_records(folder / "metrics.jsonl")
        counts = [line["train/num_tokens"] for line in lines if "train/num_tokens" in line]
    else:
        lines = read_records(folder / "responses.jsonl")
        counts = [line["num_tokens"] for line in lines if "num_tokens" in line]
    return int(sum(counts)) if counts else None


def scores_of(folder: Path | None, wanted: dict[str, str]) -> dict[str, float]:
    """Return the numbers a step is known by: those ``wanted``, else the folder's last evaluation.

    ``wanted`` maps a name to ``file.json:dotted.key``; list items are named by their index.
    """
    if wanted:
        found = {name: _number_at(spec) for name, spec in wanted.items()}
        return {name: value for name, value in found.items() if value is not None}
    if folder is None:
        return {}
    report = _read_json(folder / "report.json")
    if isinstance(report, dict):
        return _report_scores(report)
    summary = _read_json(folder / "summary.json")
    last = summary[-1] if isinstance(summary, list) and summary else summary
    return _numbers(last) if isinstance(last, dict) else {}


def _report_scores(report: dict[str, Any]) -> dict[str, float]:
    accuracy = report.get("pass_at_1") or {}
    numbers = {
        "pass_at_1": accuracy.get("value"),
        "pass_at_1_stderr": accuracy.get("stderr"),
        "num_samples": report.get("num_samples"),
        "num_problems": report.get("num_problems"),
        **(report.get("eval_metrics") or {}),
    }
    return _numbers(numbers)


def _numbers(record: dict[str, Any]) -> dict[str, float]:
    return {
        key: value
        for key, value in record.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }


def _read_json(path: Path) -> Any:
    return json.loads(path.read_text()) if path.is_file() else None


def _number_at(spec: str) -> float | None:
    file, _, keys = spec.partition(":")
    value = value_at(_read_json(Path(file)), keys)
    return float(value) if isinstance(value, int | float) else None
