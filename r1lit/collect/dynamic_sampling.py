"""Dynamic sampling: groups of equal rewards are replaced (DAPO)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from r1lit.batches import PromptBatch, Rollout
from r1lit.collect.ahead import Ahead
from r1lit.collect.base import Collected, Collector
from r1lit.collect.fresh import Fresh
from r1lit.groups import join_rollouts, take_groups
from r1lit.rollout.worker import Timings
from r1lit.steps.base import Run


class DynamicSampling(Collector):
    """Fills P groups whose rewards differ: DAPO's dynamic sampling (2503.14476, Eq. 11).

    The first P prompts are rolled out, then as many of the reserve
    (``data.rollout.num_reserve_prompts``) at a time as groups are still missing. If the reserve
    runs out, groups of equal rewards of the first round fill up the batch: they carry no advantage,
    and the number of updates stays the same.

    Args:
        inner: where groups come from; fresh ones if left out.
    """

    def __init__(self, inner: Fresh | Ahead | None = None) -> None:
        self.inner = inner or Fresh()
        self.is_fresh = self.inner.is_fresh

    def check(self, run: Run) -> None:
        """Refuse data without a reserve of prompts."""
        self.inner.check(run)
        options = None if run.data is None else run.data.rollout
        if options is not None and not options.num_reserve_prompts:
            raise ValueError(
                "data.rollout.num_reserve_prompts: 0 leaves DynamicSampling no further prompts;"
                f" twice prompts_per_iteration, {2 * options.prompts_per_iteration}, is usual"
            )

    def __call__(self, batch: PromptBatch, run: Run, timings: Timings) -> Collected:
        """Return P groups of unequal rewards, as far as the reserve goes."""
        sampled: list[Rollout] = []
        unequal: list[Rollout] = []
        equal: list[Rollout] = []
        next_prompt, missing = 0, batch.num_prompts
        with self.inner.generating(batch, run, timings):
            while missing and next_prompt < len(batch.problems):
                prompts = range(next_prompt, min(next_prompt + missing, len(batch.problems)))
                rollout = self.groups(batch, prompts, run, timings)
                sampled.append(rollout)
                next_prompt = prompts.stop
                differ = groups_of_unequal_rewards(rollout)
                same = [p for p in range(rollout.num_prompts) if p not in differ]
                unequal += [take_groups(rollout, differ)] if differ else []
                equal += [take_groups(rollout, same)] if same else []
                missing -= len(differ)
            if missing:
                unequal.append(take_groups(join_rollouts(equal), range(missing)))
            joined = join_rollouts(unequal)
        metrics = self.inner.metrics(joined, run)
        return Collected(rollout=joined, sampled=tuple(sampled), metrics=metrics)

    def groups(
        self, batch: PromptBatch, prompts: Sequence[int], run: Run, timings: Timings
    ) -> Rollout:
        """Return a rollout of some of the batch's prompts, whatever their rewards."""
        return self.inner.groups(batch, prompts, run, timings)

    def wait(self) -> float:
        """Wait until the engine is free."""
        return self.inner.wait()

    def state(self) -> dict[Any, Any]:
        """Return the inner collector's part of a checkpoint."""
        return self.inner.state()

    def load(self, state: Mapping[Any, Any]) -> None:
        """Restore the inner collector's state."""
        self.inner.load(state)

    def close(self) -> None:
        """Let go what was begun."""
        self.inner.close()


def groups_of_unequal_rewards(rollout: Rollout) -> list[int]:
    """Return the groups whose rewards are not all equal: those that teach something."""
    reward_PG = rollout.reward_PG
    if rollout.environment_BT is not None and rollout.reward_BT is not None:  # rewards of turns
        reward_PG = reward_PG + rollout.reward_BT.sum(-1).view_as(reward_PG)
    spread_P = reward_PG.amax(-1) - reward_PG.amin(-1)
    return (spread_P > 0).nonzero().squeeze(-1).tolist()
