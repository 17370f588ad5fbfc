"""Which groups teach: the share that is mixed, all right and all wrong."""

from __future__ import annotations

import math
from typing import NamedTuple

from lightning.pytorch.utilities import rank_zero_warn

from r1lit.batches import Rollout
from r1lit.callbacks import keys
from r1lit.callbacks.statistics import RolloutStatistics

MANY = 5


class GroupRow(NamedTuple):
    """One group's source, how many of its responses are right, and whether rewards differ."""

    source: str
    num_right: int
    size: int
    rewards_differ: bool


class GroupHealth(RolloutStatistics[GroupRow]):
    """Logs shares of groups under ``<stage>/groups/``, over all and by source.

    By verdict, a group is ``all_right``, ``all_wrong`` or ``mixed``; the three sum to 1. With the
    accuracy reward alone only mixed groups have a non-zero advantage. ``mixed/<source>`` and so on
    are the shares among that source's groups; NaN in an iteration without the source.

    Where no group's rewards differ for several iterations, nothing is learned: that is warned of.
    """

    def __init__(self) -> None:
        super().__init__()
        self._num_equal = 0
        self._sources: dict[str, set[str]] = {}

    def rows(self, rollout: Rollout) -> list[GroupRow]:
        """Return one row a group."""
        return [
            GroupRow(
                group[0].problem.source,
                sum(response.verdict.value == 1.0 for response in group),
                rollout.group_size,
                bool(reward_G.max() > reward_G.min()),
            )
            for group, reward_G in zip(rollout.groups(), rollout.reward_PG, strict=True)
        ]

    def summarise(self, rows: list[GroupRow], stage: str) -> dict[str, float]:
        """Return the shares over all groups and by source."""
        if stage == "train":
            self._num_equal = 0 if any(row.rewards_differ for row in rows) else self._num_equal + 1
            if self._num_equal == MANY:
                rank_zero_warn(
                    f"rewards: in {MANY} iterations all responses to a problem got the same reward,"
                    " so nothing is learned; responses.jsonl shows them. Problems that are neither"
                    " too hard nor too easy, a larger group_size or a temperature of 1 may help"
                )
        values = _shares(rows, "")
        sources = self._sources.setdefault(stage, set())
        sources.update(row.source for row in rows)
        for source in sorted(sources):
            values.update(_shares([row for row in rows if row.source == source], f"/{source}"))
        return values


def _shares(rows: list[GroupRow], suffix: str) -> dict[str, float]:
    right = sum(row.num_right == row.size for row in rows)
    wrong = sum(row.num_right == 0 for row in rows)
    counts = {
        keys.GROUPS_MIXED: len(rows) - right - wrong,
        keys.GROUPS_ALL_RIGHT: right,
        keys.GROUPS_ALL_WRONG: wrong,
    }
    return {
        name + suffix: count / len(rows) if rows else math.nan for name, count in counts.items()
    }
