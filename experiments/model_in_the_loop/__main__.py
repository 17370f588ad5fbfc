"""Has a model judge, compare and refine in place of the oracles, and reports what that costs.

    python -m experiments.model_in_the_loop [--seeds 0,1,2] [--output runs/model_in_the_loop]

A larger model is trained on what people wrote; then agreement with the oracles on held-out
responses, a reward model on pairs of either, and SFT on data of either: the steps of
``pipeline.yaml``. Finished ones are skipped, an interrupted one goes on. At the end the tables of
README.md and model_in_the_loop.png are made; ``--report`` makes them of what is there.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.model_in_the_loop.report import read, report
from experiments.seeds import command


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    here = Path(__file__).parent
    return command(args, here=here, doc=__doc__, read=read, report=report, known_by=("seed",))


if __name__ == "__main__":
    sys.exit(main())
