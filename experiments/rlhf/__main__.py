"""Runs classic RLHF in the small world, seed by seed, and reports how it over-optimises.

    python -m experiments.rlhf [--seeds 0,1,2] [--output runs/rlhf]

SFT, responses, annotators' pairs, reward model, then PPO with each coefficient of the KL penalty:
the steps of ``pipeline.yaml``. Finished ones are skipped, an interrupted one goes on. At the end
the table of README.md and rlhf.png are made; ``--report`` makes them of what is there.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.rlhf.report import read, report
from experiments.seeds import command


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    here = Path(__file__).parent
    return command(
        args, here=here, doc=__doc__, read=read, report=report, known_by=("beta", "seed")
    )


if __name__ == "__main__":
    sys.exit(main())
