"""A reward function that fails on one of two ranks."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from r1lit.batches import Response
from r1lit.rewards import RewardFunction

NUM_RANKS = 2


class Fails(RewardFunction):
    """Fails on one rank: with an error, or killed. The others may be busy with something else."""

    name = "fails"

    def __init__(self, folder: str, rank: int = 1, killed: bool = False, busy: bool = False):
        super().__init__()
        self.folder, self.rank = Path(folder), rank
        self.killed, self.busy = killed, busy

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        if len(responses) == 2:  # made up before the first rollout
            return [0.0, 1.0]
        rank = torch.distributed.get_rank()
        (self.folder / f"rank-{rank}").write_text(str(os.getpid()))
        if rank != self.rank:
            time.sleep(600 if self.busy else 0)
            return [0.0] * len(responses)
        while len(list(self.folder.glob("rank-*"))) < NUM_RANKS:
            time.sleep(0.1)
        (self.folder / "failed").touch()
        if self.killed:
            os.kill(os.getpid(), signal.SIGKILL)
        raise RuntimeError("no such unit")
