"""Trains RL-2 with preference rewards late, early and unheld; scores beside the true preference.

    python -m experiments.reward_hacking [sweep.yaml] [--seeds 0,1] [--report]

A sweep (`experiments.sweep`): finished points are skipped, an interrupted one goes on. At the end
the table of README.md and hacking.png are made; ``--report`` makes them of what is there.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.by_source import Measures, is_right, reward, run
from experiments.sweep import Launch, in_subprocess
from r1lit.worlds.preference import refuses

REASONING = ("countdown", "chain")
MEASURES: Measures = {
    "helpful RM": (lambda s: s not in (*REASONING, "harm"), reward("helpful_rm")),
    "true helpfulness": (lambda s: s not in (*REASONING, "harm"), reward("helpfulness_true")),
    "safety RM": (lambda s: s == "harm", reward("safety_rm")),
    "true safety": (lambda s: s == "harm", reward("safety")),
    "harmless refused": (lambda s: s == "how", lambda r: float(refuses(r["response"]))),
    "reasoning pass@1": (lambda s: s in REASONING, is_right),
}


def main(args: Sequence[str] | None = None, launch: Launch = in_subprocess) -> int:
    """Run the command; return its exit status: 1 if a point failed, 2 for bad input."""
    folder = Path(__file__).parent
    return run(args, folder, MEASURES, axis="schedule", image="hacking.png", launch=launch)


if __name__ == "__main__":
    sys.exit(main())
