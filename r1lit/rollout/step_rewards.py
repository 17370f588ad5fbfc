"""Rewards of steps at the tokens that end them.

B rows (responses)   T response tokens
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from r1lit.batches import Response
from r1lit.rewards import RewardFunction
from r1lit.text.scored_text import pieces, token_places


def step_rewards(
    functions: Sequence[RewardFunction],
    responses: Sequence[Response],
    response_BT: Tensor,
    tokenizer: PreTrainedTokenizerBase,
) -> dict[str, Tensor]:
    """Return ``reward_BT`` and ``step_end_BT`` of a rollout; nothing if no function rewards steps.

    Args:
        functions: those that count in this iteration; they have been called with the responses.
        responses: with the texts that the functions have seen.
        response_BT: their tokens.
        tokenizer: of the tokens.

    Raises:
        ValueError: if steps of an episode of several turns are rewarded.
    """
    given = [own for f in functions if (own := f.step_rewards(responses)) is not None]
    if not given:
        return {}
    decode = cast(Callable[[list[int]], str], partial(tokenizer.decode, skip_special_tokens=True))
    reward_BT = torch.zeros(response_BT.shape, device=response_BT.device)
    step_end_BT = torch.zeros_like(response_BT, dtype=torch.bool)
    for row, response in enumerate(responses):
        if response.transcript is not None and any(own[row].ends for own in given):
            raise ValueError(
                "rewards: steps are rewarded at places of a text, and the tokens of an episode of"
                " several turns are not those of its text; reward its turns by StepResult.reward"
            )
        texts = pieces(decode, response_BT[row, : response.num_tokens].tolist())
        for own in given:
            places = token_places(texts, own[row].ends)
            for place, reward in zip(places, own[row].rewards, strict=True):
                reward_BT[row, place] += reward
                step_end_BT[row, place] = True
    return {"reward_BT": reward_BT, "step_end_BT": step_end_BT}
