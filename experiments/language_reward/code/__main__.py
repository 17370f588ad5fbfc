"""Trains reasoning RL with and without the language reward on programs too; a panel a kind.

    python -m experiments.language_reward.code [sweep.yaml] [--seeds 0,1] [--report]

A sweep (`experiments.sweep`): finished points are skipped, an interrupted one goes on. At the end
the tables of README.md and code.png are made; ``--report`` makes them of what is there.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.by_source import Measures, is_right, reward, run
from experiments.sweep import Launch, in_subprocess

KINDS = {"mathematics": ("countdown", "chain"), "code": ("programs",), "logic": ("puzzles",)}
MEASURES: Measures = {
    f"{title}, {kind}": (sources.__contains__, value)
    for title, value in (
        ("language consistency", reward("language_consistency")),
        ("pass@1", is_right),
    )
    for kind, sources in KINDS.items()
}


def main(args: Sequence[str] | None = None, launch: Launch = in_subprocess) -> int:
    """Run the command; return its exit status: 1 if a point failed, 2 for bad input."""
    folder = Path(__file__).parent
    return run(args, folder, MEASURES, axis="language reward", image="code.png", launch=launch)


if __name__ == "__main__":
    sys.exit(main())
