"""Plants faults in short runs, asks ``r1lit doctor`` about each, and writes the table.

    python -m experiments doctor [--only NAME ...] [--judge]

All runs are made in one process, one after the other; a finished one is skipped.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
RUNS = Path("runs/doctor")
BASE = ["configs/mini/r1_zero.yaml", str(HERE / "base.yaml")]
HEALTHY: dict[str, dict[str, Any]] = {
    **{f"seed_{n}": {"seed_everything": n} for n in range(4)},
    **{
        name.lower(): {"model.objective": {"class_path": f"r1lit.objectives.{name}"}}
        for name in ("GRPO", "DAPO", "CISPO", "SAPO", "DPPO")
    },
}


def nested(change: Mapping[str, Any]) -> dict[str, Any]:
    """Return dotted keys as a configuration; ``model.`` and ``data.`` stand for their init_args."""
    whole: dict[str, Any] = {}
    for key, value in change.items():
        head, *rest = key.split(".")
        parts = [head, "init_args", *rest] if head in ("model", "data") else [head, *rest]
        at = whole
        for part in parts[:-1]:
            at = at.setdefault(part, {})
        at[parts[-1]] = value
    return whole


def runs() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each run's name and change: healthy ones first, then the faults."""
    for name, change in HEALTHY.items():
        yield f"healthy/{name}", change
    for name, fault in yaml.safe_load((HERE / "faults.yaml").read_text()).items():
        yield f"faults/{name}", fault["change"]


def train(name: str, change: Mapping[str, Any]) -> None:
    """Make one run, unless it is there."""
    from r1lit.cli import main

    folder = RUNS / name
    if (folder / "done").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "change.yaml").write_text(yaml.safe_dump(nested(change)))
    files = [part for file in [*BASE, str(folder / "change.yaml")] for part in ("-c", file)]
    try:
        main(["fit", *files, "--run", str(folder)])
        (folder / "done").touch()
    except ValueError as error:
        print(f"{name}: {error}", flush=True)


def command(args: list[str]) -> None:
    """Make the runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", help="names of runs")
    options = parser.parse_args(args)
    for name, change in runs():
        if options.only is None or name.split("/")[1] in options.only:
            train(name, change)


if __name__ == "__main__":
    command(sys.argv[1:])
