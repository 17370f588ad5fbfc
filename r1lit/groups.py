"""Groups of a rollout taken out of it, and rollouts joined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from r1lit.batches import Rollout

PER_ROW = (
    *("response_BT", "length_B", "loss_mask_BT"),
    *("logp_sampler_BT", "logp_old_BT", "advantage_BT"),
)


OPTIONAL = ("reward_BT", "step_end_BT", "weight_BT", "version_BT", "environment_BT")


def take_groups(rollout: Rollout, groups: Sequence[int]) -> Rollout:
    """Return the rollout of some of the groups."""
    size = rollout.group_size
    rows = [p * size + g for p in groups for g in range(size)]
    index_P = torch.tensor(list(groups), dtype=torch.long, device=rollout.reward_PG.device)
    index_B = torch.tensor(rows, dtype=torch.long, device=rollout.response_BT.device)
    return replace(
        rollout,
        prompts=tuple(rollout.prompts[p] for p in groups),
        responses=tuple(rollout.responses[b] for b in rows),
        rewards={name: reward[index_P] for name, reward in rollout.rewards.items()},
        reward_PG=rollout.reward_PG[index_P],
        candidates=rollout.candidates and tuple(rollout.candidates[b] for b in rows),
        extra_BT={name: value_BT[index_B] for name, value_BT in rollout.extra_BT.items()},
        **{name: getattr(rollout, name)[index_B] for name in _per_row(rollout)},
    )


def counting_groups(rollout: Rollout) -> Tensor:
    """Return of each group whether any of its tokens counts, [P]; none does of one left out."""
    return rollout.loss_mask_BT.any(-1).view(rollout.num_prompts, -1).any(-1)


def join_rollouts(rollouts: Sequence[Rollout]) -> Rollout:
    """Put rollouts of one iteration below each other, padded to the longest response."""
    first = rollouts[0]
    if len(rollouts) == 1:
        return first
    assert all(r.iteration == first.iteration for r in rollouts)
    assert all(r.group_size == first.group_size for r in rollouts)
    width = max(r.response_BT.shape[1] for r in rollouts)
    names = dict.fromkeys(name for r in rollouts for name in _per_row(r))
    extras = dict.fromkeys(name for r in rollouts for name in r.extra_BT)

    def joined(given: list[Tensor | None]) -> Tensor:
        dtype = next(t.dtype for t in given if t is not None)
        parts = [
            torch.zeros_like(r.response_BT, dtype=dtype) if t is None else t
            for r, t in zip(rollouts, given, strict=True)
        ]
        if parts[0].ndim == 2:
            parts = [nn.functional.pad(t, (0, width - t.shape[1])) for t in parts]
        return torch.cat(parts)

    return replace(
        first,
        prompts=tuple(p for r in rollouts for p in r.prompts),
        responses=tuple(x for r in rollouts for x in r.responses),
        rewards={name: torch.cat([r.rewards[name] for r in rollouts]) for name in first.rewards},
        reward_PG=torch.cat([r.reward_PG for r in rollouts]),
        candidates=first.candidates and tuple(c for r in rollouts for c in r.candidates or ()),
        extra_BT={name: joined([r.extra_BT.get(name) for r in rollouts]) for name in extras},
        **{name: joined([getattr(r, name) for r in rollouts]) for name in names},  # type: ignore[arg-type]
    )


def _per_row(rollout: Rollout) -> list[str]:
    return [*PER_ROW, *(name for name in OPTIONAL if getattr(rollout, name) is not None)]
