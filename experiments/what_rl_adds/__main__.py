"""Asks what RL adds and what the base brings: controls, doses of patience, pass@k; and reports.

    python -m experiments.what_rl_adds [--seeds 0,1,2] [--output runs/what_rl_adds]

The controls are a sweep (``sweep.yaml``), the rest are steps of ``pipeline.yaml``. Finished ones
are skipped, an interrupted one goes on; started with other seeds beside it, two share the machine.
At the end README.md gets its tables and figure; ``--report`` makes them of what is there.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.seeds import command
from experiments.what_rl_adds.report import KNOWN_BY, read, report


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    here = Path(__file__).parent
    return command(args, here=here, doc=__doc__, read=read, report=report, known_by=KNOWN_BY)


if __name__ == "__main__":
    sys.exit(main())
