"""A finished or running training's folder, as the rules read it."""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import yaml

from r1lit.files import Record, read_existing


class Run:
    """A run folder as the rules read it: settings by dotted key, and each metric's numbers.

    ``asked`` holds what rules have asked it for, and whether it was there: metrics by their key,
    settings as ``config.yaml``, and responses as ``responses.jsonl``.

    Raises:
        ValueError: if the folder has no metrics.
    """

    kind = "r1lit"
    """Whose files these are."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: dict[str, bool] = {}
        self.metrics = self.read_metrics()

    def read_metrics(self) -> list[Record]:
        """Return a line for each iteration, by the names of docs/METRICS.md."""
        found = read_existing(self.folder / "metrics.jsonl", "run")
        if not found:
            raise ValueError(f"run: {self.folder / 'metrics.jsonl'} has no iteration yet")
        return found

    @cached_property
    def config(self) -> dict[str, Any]:
        """The run's configuration; empty where there is none."""
        path = self.folder / "config.yaml"
        return (yaml.safe_load(path.read_text()) or {}) if path.exists() else {}

    @cached_property
    def lines(self) -> list[Record]:
        """All recorded responses, in order."""
        return self._records("responses.jsonl")

    @cached_property
    def evaluations(self) -> list[Record]:
        """Evaluations of the run, as ``summary.json`` has them."""
        path = self.folder / "summary.json"
        return list(json.loads(path.read_text())) if path.exists() else []

    @cached_property
    def measurements(self) -> list[Record]:
        """The lines of ``doctor.jsonl``."""
        return self._records("doctor.jsonl")

    @property
    def measured(self) -> list[Record]:
        """Lines of the callback ``Doctor``: weights that moved, and whether the right way."""
        self.asked["doctor.jsonl"] = bool(self.measurements)
        return self.measurements

    def measured_numbers(self, key: str) -> list[float]:
        """Return a number of each line of the callback ``Doctor`` that has it."""
        return [line[key] for line in self.measured if line.get(key) is not None]

    @cached_property
    def adapter_config(self) -> dict[str, Any] | None:
        """The settings of the adapter that is trained alone; None where all weights are."""
        value = self._at("model.policy.adapter")
        return None if not value else dict(value.get("init_args", value))

    def translated(self, text: str) -> str:
        """Return a text about a run in the names of the run's trainer."""
        return text

    def _records(self, name: str) -> list[Record]:
        path = self.folder / name
        return read_existing(path, "run") if path.exists() else []

    def until(self, num_iterations: int) -> Self:
        """Return the run as it was after its first iterations."""
        early = object.__new__(type(self))
        early.folder, early.asked = self.folder, {}
        early.metrics = self.metrics[:num_iterations]
        last = early.metrics[-1]["iteration"]
        early.__dict__["config"] = self.config
        for name in ("lines", "evaluations", "measurements"):
            rows = getattr(self, name)
            early.__dict__[name] = [row for row in rows if row.get("iteration", 0) <= last]
        return early

    @cached_property
    def responses(self) -> list[Record]:
        """Recorded responses of training, in order; evaluation's where there are none."""
        self.asked["responses.jsonl"] = bool(self.lines)
        return [line for line in self.lines if line.get("split") == "train"] or self.lines

    def setting(self, key: str, default: Any = None) -> Any:
        """Return a setting; ``model.`` and ``data.`` stand for their ``init_args``, and so on."""
        value = self._at(key)
        return default if value is None else value

    def class_of(self, key: str) -> str:
        """Return the name of the class at a key, without its module."""
        value = self._at(key)
        path = value.get("class_path", "") if isinstance(value, dict) else value or ""
        return str(path).rsplit(".", 1)[-1]

    def _at(self, key: str) -> Any:
        value: Any = self.config
        self.asked["config.yaml"] = bool(self.config)
        for part in key.split("."):
            value = value.get("init_args", value) if isinstance(value, dict) else None
            value = value.get(part) if isinstance(value, dict) else None
        return value

    def values(self, key: str) -> list[float]:
        """Return a metric's finite numbers, in the order of iterations."""
        found = (line.get(key) for line in self.metrics)
        finite = [float(v) for v in found if isinstance(v, int | float) and math.isfinite(v)]
        self.asked[key] = bool(finite)
        return finite

    def mean(self, key: str, default: float = float("nan")) -> float:
        """Return a metric's mean over iterations. Without any it is NaN, which is above nothing."""
        return statistics.fmean(self.values(key) or [default])

    @property
    def window(self) -> int:
        """Iterations of its start and of its end: a fifth each, two at least."""
        return max(2, len(self.metrics) // 5)

    def start(self, key: str) -> float:
        """Return a metric's mean over the start of the run."""
        return statistics.fmean(self.values(key)[: self.window] or [float("nan")])

    def end(self, key: str) -> float:
        """Return its mean over the end."""
        return statistics.fmean(self.values(key)[-self.window :] or [float("nan")])

    @property
    def trained_on(self) -> list[Record]:
        """Recorded responses of training; none where evaluation alone was recorded."""
        return [line for line in self.responses if line.get("split") == "train"]

    @cached_property
    def by_iteration(self) -> list[list[Record]]:
        """Recorded responses of each iteration, the first one's first."""
        found: dict[Any, list[Record]] = defaultdict(list)
        for line in self.responses:
            found[line.get("iteration")].append(line)
        return list(found.values())

    @cached_property
    def groups(self) -> list[list[Record]]:
        """Recorded responses of training by group: those to one problem in one iteration."""
        found: dict[Any, list[Record]] = defaultdict(list)
        for line in self.trained_on:
            found[line.get("iteration"), line.get("uid")].append(line)
        return list(found.values())

    @property
    def num_rows(self) -> int:
        """Responses of an iteration."""
        keys = ("prompts_per_iteration", "group_size")
        return math.prod(int(self.setting(f"data.rollout.{key}", 0)) for key in keys)

    @property
    def window_rows(self) -> int:
        """Responses of the iterations of its start, or of its end."""
        return self.window * max(self.num_rows, 1)

    @property
    def num_updates(self) -> int:
        """Updates of an iteration."""
        minibatches = math.ceil(self.num_rows / self.setting("model.train_batch_size", 64))
        return minibatches * int(self.setting("model.num_inner_epochs", 1))

    def standard_error(self, key: str) -> float:
        """Return the standard error of a share's change from start to end, rows independent.

        What is paid 0 or more than 1, as TRL's examples pay 2 for a right answer, has its largest
        mean in place of 1.
        """
        start, most = self.start(key), max([1.0, *self.values(key)])
        return math.sqrt(max(2 * start * (most - start), 0.0) / self.window_rows)

    def moved(self, key: str) -> str:
        """Return its start and end in words."""
        return f"{key} went from {self.start(key):.3g} to {self.end(key):.3g}"


def got_right(line: Record) -> bool:
    """Return whether a recorded response was judged right."""
    return bool(line.get("status") == "right")
