"""Runs every search over the base of the small world, seed by seed, and reports.

    python -m experiments.search [--seeds 0,1,2] [--output runs/search]

A value model of the base, R1-Zero in miniature to compare with, and what `measure` measures: the
steps of ``pipeline.yaml``. Finished ones are skipped, an interrupted one goes on. At the end the
tables of README.md and search.png are made; ``--report`` makes them of what is there.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.search.report import read_points, report
from experiments.seeds import command


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    here = Path(__file__).parent
    return command(args, here=here, doc=__doc__, read=read_points, report=report)


if __name__ == "__main__":
    sys.exit(main())
