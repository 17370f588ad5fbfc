"""Rewards of steps at the tokens that end them.

B rows (responses)   T response tokens
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import cast

import torch
from transformers import PreTrainedTokenizerBase

from r1lit.batches import Rollout
from r1lit.rewards import StepRewards
from r1lit.text.scored_text import pieces, token_places


def add_step_rewards(
    rollout: Rollout,
    rewards: Sequence[Sequence[StepRewards]],
    tokenizer: PreTrainedTokenizerBase,
) -> Rollout:
    """Return a rollout with rewards of steps at the tokens that end them.

    Args:
        rollout: with the texts that the reward functions have seen.
        rewards: of each function, one for each response.
        tokenizer: of the rollout's tokens.

    Raises:
        ValueError: if steps of an episode of several turns are rewarded.
    """
    decode = cast(Callable[[list[int]], str], partial(tokenizer.decode, skip_special_tokens=True))
    response_BT = rollout.response_BT
    reward_BT = torch.zeros(response_BT.shape, device=response_BT.device)
    step_end_BT = torch.zeros_like(response_BT, dtype=torch.bool)
    for row, response in enumerate(rollout.responses):
        if response.transcript is not None and any(own[row].ends for own in rewards):
            raise ValueError(
                "rewards: steps are rewarded at places of a text, and the tokens of an episode of"
                " several turns are not those of its text; reward its turns by StepResult.reward"
            )
        texts = pieces(decode, response_BT[row, : response.num_tokens].tolist())
        for own in rewards:
            places = token_places(texts, own[row].ends)
            for place, reward in zip(places, own[row].rewards, strict=True):
                reward_BT[row, place] += reward
                step_end_BT[row, place] = True
    return replace(rollout, reward_BT=reward_BT, step_end_BT=step_end_BT)
