"""Entries of the results: written after each piece of work, merged with those already there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.timing import Comparison, ratios

KEYS = (
    "work",
    "model",
    "peer",
    "goal",
    "ratio_median",
    "ratio_min",
    "ratio_max",
    "ours",
    "theirs",
    "unit",
)


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


def compare(
    comparison: Comparison,
    *,
    work: str,
    model: str,
    peer: str,
    goal: float | None,
    unit: str,
    key: str = "seconds",
    **extra: Any,
) -> Entry:
    """Make an entry of one number of both sides' steps, memory if ``work`` says so."""
    ours = [float(step[key]) for step in comparison.ours]
    theirs = [float(step[key]) for step in comparison.theirs]
    return Entry(
        work=work,
        model=model,
        peer=peer,
        goal=goal,
        unit=unit,
        **ratios(ours, theirs, memory="memory" in work),
        extra={
            "repeats": len(ours),
            "warmup_ours_s": round(comparison.warmup_ours_s, 2),
            "warmup_theirs_s": round(comparison.warmup_theirs_s, 2),
            **extra,
        },
    )


def merge(old: Sequence[Entry], new: Sequence[Entry]) -> list[Entry]:
    """Return ``old`` with the entries of ``new`` in place of those of the same name."""
    by_name = {entry.name: entry for entry in [*old, *new]}
    return list(by_name.values())


def read_entries(path: Path) -> list[Entry]:
    """Return the entries of a file, none if there is no file."""
    if not path.exists():
        return []
    return [Entry.from_dict(row) for row in json.loads(path.read_text())]


def write_json(path: Path, value: Any) -> None:
    """Write JSON so that a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(value, indent=1) + "\n")
    partial.replace(path)


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
