"""Asks when *wait* and the checks it begins set in, by how seldom the base checks; and reports.

    python -m experiments.sweep experiments/late_onset/pages.yaml     # the bases
    python -m experiments.late_onset [--seeds 0,1,2] [--report]

Finished runs are skipped, an interrupted one goes on; started once more, two share the runs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.late_onset.report import read, report
from experiments.study import run_study


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status: 1 if a point failed, 2 for bad input."""
    return run_study(
        args,
        Path(__file__).parent,
        report,
        "onset.png",
        read=read,
        note="lines: means over seeds, bands: ± 1 s.e. of them",
        known_by=("variant", "seed"),
    )


if __name__ == "__main__":
    sys.exit(main())
