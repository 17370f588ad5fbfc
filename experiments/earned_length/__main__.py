"""Runs `make aha` seed by seed, bans its words at decoding, and reports whether length is earned.

    python -m experiments.earned_length [--seeds 0,1,2] [--output runs/earned_length]

The steps of ``pipeline.yaml``: finished ones are skipped, an interrupted one goes on. At the end
the tables of README.md and earned_length.png are made; ``--report`` makes them of what is there.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.earned_length.report import read, report
from experiments.seeds import command


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    here = Path(__file__).parent
    return command(args, here=here, doc=__doc__, read=read, report=report, known_by=("run",))


if __name__ == "__main__":
    sys.exit(main())
