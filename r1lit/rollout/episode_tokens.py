"""Tokens and rewards of an environment, in a rollout and in its numbers.

P prompts   G responses per prompt   B = P*G rows, prompt-major   T response tokens
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

import torch

from r1lit.batches import Rollout
from r1lit.problems import Ended, Response
from r1lit.rollout.left_out import failed_groups, leave_out_groups
from r1lit.rollout.request import Completion


def add_environment_tokens(rollout: Rollout, completions: Sequence[Completion]) -> Rollout:
    """Return a rollout with what an environment wrote and gave; advantages are not made yet.

    Rewards of turns are rewards of the last tokens of these turns. A group with a failed episode is
    left out: its rewards are 0, as are those of its tokens, and nothing of it is in the loss.
    """
    device, shape = rollout.response_BT.device, rollout.response_BT.shape
    written_BT = torch.zeros(shape, dtype=torch.bool)
    given_BT, end_BT = torch.zeros(shape), torch.zeros(shape, dtype=torch.bool)
    for row, completion in enumerate(completions):
        if completion.environment_T is not None:
            written_BT[row, : completion.num_tokens] = completion.environment_T.cpu()
        transcript = completion.transcript
        for end, reward in zip(
            *((transcript.turn_ends, transcript.turn_rewards) if transcript else ((), ())),
            strict=False,  # a turn that was cut has no reward
        ):
            given_BT[row, end - 1] += reward
            end_BT[row, end - 1] = True
    rollout = replace(
        rollout,
        environment_BT=written_BT.to(device),
        loss_mask_BT=rollout.loss_mask_BT & ~written_BT.to(device),
    )
    reward_BT, ends_BT = rollout.reward_BT, end_BT.to(device)
    step_end_BT = ends_BT if rollout.step_end_BT is None else rollout.step_end_BT | ends_BT
    if bool(given_BT.any()):
        reward_BT = given_BT.to(device) + (0.0 if reward_BT is None else reward_BT)
    rollout = replace(rollout, reward_BT=reward_BT, step_end_BT=step_end_BT)
    return leave_out_groups(rollout, failed_groups(rollout))


ENDINGS: tuple[Ended, ...] = get_args(Ended)


def episode_metrics(responses: Sequence[Response], stage: str) -> dict[str, float]:
    """Return means over a rollout's episodes, by their logged names; nothing without any."""
    played = [r.transcript for r in responses if r.transcript is not None]
    if not played:
        return {}
    num = len(played)
    calls, invalid = (sum(getattr(t, f"num_{n}") for t in played) for n in ("calls", "invalid"))
    turns = sum(len(t.turn_ends) for t in played)
    return {
        f"{stage}/environment/turns": turns / num,
        f"{stage}/environment/calls": calls / num,
        f"{stage}/environment/invalid": invalid / turns,
        f"{stage}/environment/reward": sum(sum(t.turn_rewards) for t in played) / num,
        f"{stage}/environment/tokens": sum(r.num_environment_tokens for r in responses) / num,
        **{
            f"{stage}/environment/ended/{how}": sum(t.ended == how for t in played) / num
            for how in ENDINGS
        },
    }
