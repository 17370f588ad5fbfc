"""The files that a run leaves: entries as JSON, and a page with the table and the machine."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from benchmarks.results import Entry, merge, read_entries, table, write_json
from r1lit.evaluation.run_folder import git

ROOT = Path(__file__).parents[1]
PACKAGES = ("torch", "transformers", "lightning", "trl", "accelerate")


class Report:
    """Writes the results anew after each piece of work; what is measured again is replaced."""

    def __init__(self, path: Path, title: str, command: str, device: str) -> None:
        self.path = path
        self.title = title
        self.command = command
        self.begun = datetime.now().isoformat(" ", "minutes")
        self.device = device
        self.entries = read_entries(path)

    def add(self, entries: Sequence[Entry], limits: Mapping[str, float]) -> None:
        """Take in new entries, with the machine's limits at their time, and write both files."""
        stamp = {
            "limits": dict(limits),
            "command": self.command,
            "commit": commit(),
            "date": today(),
            "run": self.begun,
        }
        stamped = [replace(entry, extra={**entry.extra, **stamp}) for entry in entries]
        self.entries = merge(self.entries, stamped)
        write_json(self.path, [entry.to_dict() for entry in self.entries])
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


def today() -> str:
    """Return the date."""
    return date.today().isoformat()
