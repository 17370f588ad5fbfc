"""Reward models and critics: a policy's body under a head that gives one number a row or a token.

    B rows   S tokens of the longest row   K response tokens   H hidden size

Rows are padded on the right, where causal attention keeps them from the padding without a mask.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from transformers import PretrainedConfig

from r1lit.policy.policy import ModelWrapper, Responses

Tokens = Sequence[int]
HEAD = "score"
MEAN, STD = "reward_mean", "reward_std"


class ScalarModel(ModelWrapper):
    """Wraps a Hugging Face sequence classifier of one number, ``model``: reward model or critic.

    The configuration also holds what its rewards are normalised by.
    """

    def forward(
        self, inputs: Sequence[Tokens] | Responses, places: Sequence[Tokens] | None = None
    ) -> Tensor:
        """Return the head's outputs, float32, as trained.

        Args:
            inputs: rows of token ids; or responses to prompts, read before each of their tokens, as
                a critic's values are.
            places: which tokens of each row are read, as a process model is; the last if left out.

        Returns:
            One number a row (B), or one a token that is read, row after row (K).
        """
        device = self.model.device
        if isinstance(inputs, Responses):
            responses = zip(
                inputs.response_BT.tolist(), inputs.mask_BT.sum(-1).tolist(), strict=True
            )
            rows: Sequence[Tokens] = [
                [*prompt, *response[:length]]
                for prompt, (response, length) in zip(inputs.prompts, responses, strict=True)
            ]
            first_B = torch.tensor([len(prompt) - 1 for prompt in inputs.prompts], device=device)
            row, place = inputs.mask_BT.nonzero(as_tuple=True)
            place = place + first_B[row]
        else:
            rows = inputs
            places = places or [[len(tokens) - 1] for tokens in rows]
            num_B = torch.tensor([len(own) for own in places], device=device)
            row = torch.arange(len(rows), device=device).repeat_interleave(num_B)
            place = torch.tensor([p for own in places for p in own], device=device)
        width = max(map(len, rows))
        pad = int(self.config.pad_token_id)
        padded = [[*tokens, *[pad] * (width - len(tokens))] for tokens in rows]
        ids_BS = torch.tensor(padded, device=device)
        hidden_BSH = self.model.base_model(input_ids=ids_BS, use_cache=False).last_hidden_state
        return getattr(self.model, HEAD)(hidden_BSH[row, place]).squeeze(-1).float()


def split_by_length(lengths: Sequence[int], max_tokens: int) -> Iterator[list[int]]:
    """Yield indices of items whose padded tokens are at most ``max_tokens``, longest first.

    An item longer than that has a batch of its own.

    >>> list(split_by_length([2, 5, 3], 6))
    [[1], [2, 0]]
    """
    part: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if part and (len(part) + 1) * lengths[part[0]] > max_tokens:
            yield part
            part = []
        part.append(index)
    if part:
        yield part


@torch.no_grad()
def score_rows(model: ScalarModel, rows: Sequence[Tokens], batch_tokens: int) -> Tensor:
    """Return the rewards of any number of rows, in their order, on the CPU; no gradient."""
    rewards = torch.zeros(len(rows))
    for part in split_by_length([len(row) for row in rows], batch_tokens):
        rewards[part] = model([rows[i] for i in part]).cpu()
    return rewards


def normalised(config: PretrainedConfig, reward_B: Tensor) -> Tensor:
    """Return rewards less their mean over the reference set, which the model was exported with.

    Raises:
        ValueError: if it was exported without one.
    """
    return reward_B - reference_statistic(config, MEAN)


def reference_statistic(config: PretrainedConfig, key: str) -> float:
    """Return ``reward_mean`` or ``reward_std`` of an exported reward model.

    Raises:
        ValueError: if it has none.
    """
    value = getattr(config, key, None)
    if value is None:
        raise ValueError(
            f"path: the config.json of {config.name_or_path!r} has no {key}, so its rewards have no"
            " zero; RewardModule exports it, and 0.0 (mean) and 1.0 (std) may be written by hand"
        )
    return float(value)


@torch.no_grad()
def score_steps(
    model: ScalarModel, rows: Sequence[Tokens], places: Sequence[Tokens], batch_tokens: int
) -> list[list[float]]:
    """Return the scores at some tokens of each row, at least one; see ``score_rows``."""
    scores: list[list[float]] = [[] for _ in rows]
    for part in split_by_length([len(row) for row in rows], batch_tokens):
        read = iter(model([rows[i] for i in part], [places[i] for i in part]).tolist())
        for i in part:
            scores[i] = [next(read) for _ in places[i]]
    return scores
