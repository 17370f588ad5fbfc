"""The command of a page's second table: of a sweep's runs, into the README beside its file."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from experiments.command import reported
from experiments.page import write_into
from experiments.points import Sweep, read_sweep
from r1lit.files import Record


def command(
    args: Sequence[str] | None,
    *,
    file: str,
    read: Callable[[Sweep], list[Record]],
    as_table: Callable[[Sequence[Record]], str],
    marks: tuple[str, str],
    raw_name: str,
) -> int:
    """Run such a command; return its exit status, 2 for bad input.

    Args:
        args: of the command line.
        file: the module's own; ``sweep.yaml`` lies beside it.
        read: returns what the table is made of.
        as_table: makes the table of it, as Markdown.
        marks: the two lines of the README between which the table stands.
        raw_name: the file, beside the README, of what the table is made of.
    """
    own = Path(file)
    parser = argparse.ArgumentParser(prog=f"python -m experiments.{own.parent.name}.{own.stem}")
    parser.add_argument("sweep", nargs="?", type=Path, default=own.with_name("sweep.yaml"))
    path: Path = parser.parse_args(args).sweep

    @reported(own.stem)
    def make() -> int:
        records = read(read_sweep(path))
        table = as_table(records)
        write_into(path.with_name("README.md"), table, raw=records, marks=marks, raw_name=raw_name)
        print(table)
        return 0

    return make()
