"""A budget of compute that an earlier run has spent."""

from __future__ import annotations

import json
from pathlib import Path

from experiments.distill_vs_rl.compute import ComputeCount


class EqualCompute(ComputeCount):
    """Ends a run when it has spent as many FLOPs as another one, both as `ComputeCount` counts.

    Args:
        path: of this run's count.
        like: the other run's ``compute.json``.
        decay_to: share of the learning rate that is left at the end.
    """

    def __init__(self, path: str, like: str, decay_to: float = 1.0) -> None:
        other = Path(like)
        if not other.is_file():
            raise ValueError(
                f"like: there is no file {like!r}; the run to equal writes it at its end"
            )
        super().__init__(path, float(json.loads(other.read_text())["flops"]), decay_to)
