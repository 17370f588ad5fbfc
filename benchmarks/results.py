"""Steps of two sides and the results made of them: entries as JSON, and a page with a table."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields, replace
from datetime import date, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import torch

from r1lit.evaluation.run_folder import git
from r1lit.files import replace_json

ROOT = Path(__file__).parents[1]
PACKAGES = ("torch", "transformers", "lightning", "trl", "accelerate")
Step = dict[str, Any]


class Stepper(Protocol):
    """What makes one step at a time."""

    def step(self) -> Step:
        """Make a step and return at least its seconds."""


Side = Callable[[], AbstractContextManager[Stepper]]
"""What starts one side of a comparison."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Steps of two sides made by turns, and the seconds of those before that do not count."""

    ours: list[Step] = field(default_factory=list)
    theirs: list[Step] = field(default_factory=list)
    warmup_ours_s: float = 0.0
    warmup_theirs_s: float = 0.0


def alternate(
    ours: Side,
    theirs: Side,
    *,
    repeats: int,
    warmups: int = 1,
    alone: bool = False,
    show: Callable[[str], None] = lambda line: None,
) -> Comparison:
    """Make ``warmups`` uncounted steps of each side, then ``repeats`` by turns: A B A B.

    With ``alone``, each turn is a process of its own that warms up by itself: for sides that do not
    fit into memory together.
    """
    warm = {"r1lit": 0.0, "peer": 0.0}
    steps: dict[str, list[Step]] = {"r1lit": [], "peer": []}

    def make_step(name: str, side: Stepper, is_warmup: bool) -> None:
        step = side.step()
        if is_warmup:
            warm[name] += step["seconds"]
        else:
            steps[name].append(step)
        kind = "warm-up" if is_warmup else f"{len(steps[name])} of {repeats}"
        show(f"{name:>6} {kind}: {step['seconds']:.2f} s")

    turns = [True] * warmups + [False] * (1 if alone else repeats)
    if alone:
        for _ in range(repeats):
            for name, side in (("r1lit", ours), ("peer", theirs)):
                with side() as worker:
                    for is_warmup in turns:
                        make_step(name, worker, is_warmup)
    else:
        with ours() as first, theirs() as second:
            for is_warmup in turns:
                make_step("r1lit", first, is_warmup)
                make_step("peer", second, is_warmup)
    return Comparison(
        ours=steps["r1lit"],
        theirs=steps["peer"],
        warmup_ours_s=warm["r1lit"],
        warmup_theirs_s=warm["peer"],
    )


def ratios(ours: Sequence[float], theirs: Sequence[float], *, memory: bool) -> dict[str, float]:
    """Return the ratios of steps that were made after each other, and both sides' medians.

    Time: theirs / ours, how many times faster. Memory: ours / theirs, the share that is needed.

    >>> ratios([1.0, 2.0], [4.0, 6.0], memory=False)["ratio_median"]
    3.5
    >>> ratios([1.0], [4.0], memory=True)["ratio_median"]
    0.25
    """
    pairs = list(zip(ours, theirs, strict=True))
    each = [a / b if memory else b / a for a, b in pairs]
    return {
        "ratio_median": median(each),
        "ratio_min": min(each),
        "ratio_max": max(each),
        "ours": median(ours),
        "theirs": median(theirs),
    }


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One row of the table.

    A ratio is theirs / ours for time, and ours / theirs for memory, whose ``work`` says memory.
    ``goal`` is the least ratio wanted, for memory the largest; None where there is none.
    """

    work: str
    model: str
    peer: str
    goal: float | None
    ratio_median: float
    ratio_min: float
    ratio_max: float
    ours: float
    theirs: float
    unit: str
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def is_memory(self) -> bool:
        """Whether less is better."""
        return "memory" in self.work

    @property
    def met(self) -> bool | None:
        """Whether the median reaches the goal."""
        if self.goal is None:
            return None
        return self.ratio_median <= self.goal if self.is_memory else self.ratio_median >= self.goal

    @property
    def run(self) -> str:
        """When the run began that it was measured in; of older entries the day."""
        return str(self.extra.get("run", self.extra.get("date", "unknown")))

    @property
    def name(self) -> tuple[str, str, str]:
        """What an entry replaces when measured again."""
        return self.work, self.model, self.peer

    def with_rates(self, **rates: Callable[[float], float]) -> Entry:
        """Return the entry with a rate of each side's seconds: ``mfu_ours`` and ``mfu_theirs``."""
        sides = {"ours": self.ours, "theirs": self.theirs}
        found = {f"{n}_{s}": rate(sides[s]) for n, rate in rates.items() for s in sides}
        return replace(self, extra=self.extra | found)

    def to_dict(self) -> dict[str, Any]:
        """Return the entry as it is written."""
        row = {key: getattr(self, key) for key in KEYS}
        rounded = {k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in row.items()}
        return rounded | self.extra

    @staticmethod
    def from_dict(row: dict[str, Any]) -> Entry:
        """Return the entry that was written."""
        extra = {key: value for key, value in row.items() if key not in KEYS}
        return Entry(**{key: row[key] for key in KEYS}, extra=extra)


KEYS = tuple(own.name for own in fields(Entry) if own.name != "extra")


def of_numbers(
    ours: Sequence[float],
    theirs: Sequence[float],
    *,
    work: str,
    model: str,
    peer: str,
    unit: str,
    goal: float | None = None,
    **extra: Any,
) -> Entry:
    """Make an entry of numbers of both sides, memory if ``work`` says so."""
    found = ratios(ours, theirs, memory="memory" in work)
    return Entry(work=work, model=model, peer=peer, goal=goal, unit=unit, **found, extra=extra)


def compare(comparison: Comparison, *, key: str = "seconds", **labels: Any) -> Entry:
    """Make an entry of one number of both sides' steps; see ``of_numbers``."""
    ours, theirs = (
        [float(step[key]) for step in steps] for steps in (comparison.ours, comparison.theirs)
    )
    return of_numbers(
        ours,
        theirs,
        repeats=len(ours),
        warmup_ours_s=round(comparison.warmup_ours_s, 2),
        warmup_theirs_s=round(comparison.warmup_theirs_s, 2),
        **labels,
    )


def merge(old: Sequence[Entry], new: Sequence[Entry]) -> list[Entry]:
    """Return ``old`` with the entries of ``new`` in place of those of the same name."""
    by_name = {entry.name: entry for entry in [*old, *new]}
    return list(by_name.values())


def table(entries: Sequence[Entry]) -> str:
    """Return the entries as a Markdown table."""
    lines = [
        "| work | model | peer | ratio (min–max) | goal | r1lit | peer's | unit | more | run |",
        "|---|---|---|---:|---:|---:|---:|---|---|---|",
    ]
    for entry in entries:
        sign = "≤" if entry.is_memory else "≥"
        goal = "–" if entry.goal is None else f"{sign} {entry.goal:g}"
        mark = {True: " ✓", False: " ✗", None: ""}[entry.met]
        ratio = f"**{entry.ratio_median:.2f}** ({entry.ratio_min:.2f}–{entry.ratio_max:.2f})"
        more = ", ".join(
            f"{key} {value:.0%}"
            for key, value in entry.extra.items()
            if key.startswith(("mfu", "roofline")) and isinstance(value, float)
        )
        lines.append(
            f"| {entry.work} | {entry.model} | {entry.peer} | {ratio} | {goal}{mark}"
            f" | {entry.ours:.4g} | {entry.theirs:.4g} | {entry.unit} | {more} | {entry.run} |"
        )
    return "\n".join(lines)


class Report:
    """Writes the results anew after each piece of work; what is measured again is replaced."""

    def __init__(self, path: Path, title: str, command: str, device: str) -> None:
        self.path = path
        self.title = title
        self.command = command
        self.begun = datetime.now().isoformat(" ", "minutes")
        self.device = device
        rows = json.loads(path.read_text()) if path.exists() else []
        self.entries = [Entry.from_dict(row) for row in rows]

    def add(self, entries: Sequence[Entry], limits: Mapping[str, float]) -> None:
        """Take in new entries, with the machine's limits at their time, and write both files."""
        stamp = {
            "limits": dict(limits),
            "command": self.command,
            "commit": commit(),
            "date": date.today().isoformat(),
            "run": self.begun,
        }
        stamped = [replace(entry, extra={**entry.extra, **stamp}) for entry in entries]
        self.entries = merge(self.entries, stamped)
        replace_json(self.path, [entry.to_dict() for entry in self.entries])
        self.path.with_suffix(".md").write_text(self.page())

    def page(self) -> str:
        """Return the page."""
        versions = ", ".join(f"{name} {found}" for name, found in installed().items())
        return "\n".join(
            [
                f"# {self.title}",
                "",
                f"- runs (each entry of the JSON names its own): {runs(self.entries)}",
                f"- machine: {machine(self.device)}",
                f"- versions: {versions}",
                f"- the machine's limits, measured before each piece: {limits(self.entries)}",
                "",
                "A ratio is theirs / ours for time and ours / theirs for memory: its median over",
                "pairs of steps made by turns, with the least and the most.",
                "",
                table(self.entries),
                "",
            ]
        )


def runs(entries: Sequence[Entry]) -> str:
    """Return the commands that entries come from, each with its commit and when it began."""
    found = dict.fromkeys(
        (*(str(entry.extra.get(key, "unknown")) for key in ("command", "commit")), entry.run)
        for entry in entries
    )
    return "; ".join(f"`{command}` at {commit}, {run}" for command, commit, run in found)


def limits(entries: Sequence[Entry]) -> str:
    """Return the least and the most of each limit that entries were measured beside."""
    measured: dict[str, list[float]] = {}
    for entry in entries:
        for name, value in entry.extra.get("limits", {}).items():
            measured.setdefault(name, []).append(value)
    ranges = (f"{name} {min(of):,.1f} to {max(of):,.1f}" for name, of in measured.items())
    return ", ".join(ranges)


def machine(device: str) -> str:
    """Say what the work ran on."""
    if device == "cuda":
        return f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}"
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {torch.get_num_threads()} threads"


def installed() -> dict[str, str]:
    """Return the versions of what was measured."""
    found = {"Python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def commit() -> str:
    """Return the commit that was measured, with a plus if more than results differs from it."""
    try:
        head = git(ROOT, "rev-parse", "--short", "HEAD")
        but_results = ("--", ".", ":(exclude)benchmarks/results")
        changed = git(ROOT, "status", "--porcelain", "-uno", *but_results)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return f"{head}+" if changed else head
