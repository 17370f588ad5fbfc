"""A reward function that takes long, or fails to come back, in one iteration."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from r1lit.batches import Response
from r1lit.callbacks import checkpoints
from r1lit.rewards import RewardFunction


class SlowFrom(RewardFunction):
    """Takes ``seconds`` at each call from ``call`` on, and says so by a file of its rank.

    Calls before it take three seconds, so that their iterations are long ones and are saved,
    however slow the disk is.
    """

    name = "slow"

    def __init__(
        self,
        folder: str,
        call: int,
        seconds: float = 60.0,
        rank: int | None = None,
        weight: float = 0.0,
    ) -> None:
        super().__init__(weight)
        self.folder, self.call, self.seconds = Path(folder), call, seconds
        self.rank, self.calls = rank, 0
        checkpoints.EXTRA_SHARE = 1e6

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        own = int(os.environ.get("LOCAL_RANK", "0"))
        if len(responses) == 2:  # made up before the first rollout
            return [0.0, 1.0]
        self.calls += 1
        time.sleep(3.0 if self.calls < self.call < 100 else 0.0)
        if self.calls >= self.call and self.rank in (None, own):
            (self.folder / f"slow-{own}").write_text(str(os.getpid()))
            time.sleep(self.seconds)
        return [float(row % 2) for row in range(len(responses))]
