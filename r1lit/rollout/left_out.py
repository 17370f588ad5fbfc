"""Groups of a rollout that training leaves out: episodes that failed, verdicts that did not come.

P prompts   G responses per prompt
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from r1lit.batches import Rollout
from r1lit.verifiers import Grader


def failed_groups(rollout: Rollout) -> Tensor:
    """Return the groups with a failed episode, [P, 1]."""
    played = [response.transcript for response in rollout.responses]
    failed = [transcript is not None and transcript.ended == "failed" for transcript in played]
    failed_B = torch.tensor(failed, device=rollout.reward_PG.device)
    return failed_B.view_as(rollout.reward_PG).any(-1, keepdim=True)


def leave_out_groups(rollout: Rollout, left_P1: Tensor) -> Rollout:
    """Return a rollout with some groups out of the loss and rewards of 0; it has no advantages."""
    left_B1 = left_P1.expand_as(rollout.reward_PG).reshape(-1, 1)
    reward_BT = rollout.reward_BT
    return replace(
        rollout,
        loss_mask_BT=rollout.loss_mask_BT & ~left_B1,
        reward_PG=torch.where(left_P1, 0.0, rollout.reward_PG),
        rewards={name: torch.where(left_P1, 0.0, r) for name, r in rollout.rewards.items()},
        reward_BT=None if reward_BT is None else torch.where(left_B1, 0.0, reward_BT),
    )


def leave_out_undecided_groups(rollout: Rollout, grader: Grader) -> tuple[Rollout, int]:
    """Leave out groups of which a verdict did not come, for no fault of the response.

    Their rewards are 0, as are those of their tokens, and nothing of them is in the loss.

    Returns:
        The rollout, and how many groups are left out, for this or for a failed episode.

    Raises:
        ValueError: if more verdicts are missing than the verifier's ``max_excused``.
    """
    lacks: list[bool] = []
    for response in rollout.responses:
        ended = response.transcript is not None and response.transcript.verdict is not None
        verifier = grader.verifier_of(response.problem)
        lacks.append(not ended and response.verdict.status in verifier.excused_statuses)
    failed_P1 = failed_groups(rollout)
    if not any(lacks):
        return rollout, int(failed_P1.sum())
    last = [r for r, lack in zip(rollout.responses, lacks, strict=True) if lack][-1]
    most = grader.verifier_of(last.problem).max_excused
    if sum(lacks) > most * len(lacks):
        raise ValueError(
            f"verifier: {sum(lacks)} of {len(lacks)} responses got no verdict of"
            f" {last.problem.verifier!r}, the last one with {last.verdict.status}:"
            f" {last.verdict.reason}; more than max_excused: {most} end the run"
        )
    left_P1 = torch.tensor(lacks, device=rollout.reward_PG.device).view_as(rollout.reward_PG)
    left_P1 = left_P1.any(-1, keepdim=True)
    return leave_out_groups(rollout, left_P1), int((left_P1 | failed_P1).sum())
