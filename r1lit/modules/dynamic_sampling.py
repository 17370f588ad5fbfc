"""Dynamic sampling: groups of equal rewards are replaced (DAPO)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from r1lit.batches import PromptBatch, Rollout
from r1lit.groups import join_rollouts, take_groups


def collect_mixed(
    collect: Callable[[Sequence[int]], Rollout], batch: PromptBatch
) -> tuple[Rollout, int]:
    """Fill P groups whose rewards differ: DAPO's dynamic sampling (2503.14476, Eq. 11).

    The first P prompts are rolled out, then as many of the reserve at a time as groups are still
    missing. If the reserve runs out, unmixed groups of the first round fill up the batch: they
    carry no advantage, and the number of updates stays the same.

    Returns:
        The rollout of P groups, and how many unmixed groups were dropped from it.
    """
    mixed_rollouts, unmixed_rollouts = [], []
    next_prompt, missing = 0, batch.num_prompts
    while missing and next_prompt < len(batch.problems):
        prompt_indices = range(next_prompt, min(next_prompt + missing, len(batch.problems)))
        rollout = collect(prompt_indices)
        next_prompt = prompt_indices.stop
        mixed = mixed_groups(rollout)
        unmixed = [p for p in range(rollout.num_prompts) if p not in mixed]
        if mixed:
            mixed_rollouts.append(take_groups(rollout, mixed))
        if unmixed:
            unmixed_rollouts.append(take_groups(rollout, unmixed))
        missing -= len(mixed)
    num_unmixed = sum(r.num_prompts for r in unmixed_rollouts)
    if missing:
        fill = take_groups(join_rollouts(unmixed_rollouts), range(missing))
        mixed_rollouts.append(fill)
    return join_rollouts(mixed_rollouts), num_unmixed - missing


def mixed_groups(rollout: Rollout) -> list[int]:
    """Return the groups whose rewards are not all equal: those that teach something."""
    reward_PG = rollout.reward_PG
    if rollout.environment_BT is not None and rollout.reward_BT is not None:  # rewards of turns
        reward_PG = reward_PG + rollout.reward_BT.sum(-1).view_as(reward_PG)
    spread_P = reward_PG.amax(-1) - reward_PG.amin(-1)
    return (spread_P > 0).nonzero().squeeze(-1).tolist()
