"""The values of each token in a line of ``responses.jsonl``, for `r1lit view` to colour."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from r1lit.batches import Rollout, TokenValues
from r1lit.files import Record
from r1lit.text.pieces import pieces

DIGITS = 4


def token_records(rollout: Rollout, values: TokenValues | None, tokenizer: Any) -> list[Record]:
    """Return what to add to the lines of a rollout's first responses.

    Args:
        rollout: of P groups.
        values: of its first rows; without them, all rows have the rollout's own values only.
        tokenizer: decodes the tokens.

    Returns:
        ``reward``, the weighted sum; ``advantage``, the mean over tokens; and ``tokens``: ``text``
        of each, ``logp`` as sampled, and where the training forward ran, ``logp_trainer`` and
        ``entropy`` in nats. ``advantage`` is in ``tokens`` too where it differs between them.
    """

    def decode(ids: list[int]) -> str:
        return str(tokenizer.decode(ids, skip_special_tokens=False))

    num_rows = len(rollout.responses) if values is None else len(values.logp_BT)
    reward_B = rollout.reward_PG.flatten()
    return [
        {"reward": rounded(reward_B[row : row + 1])[0], **_of_row(rollout, values, row, decode)}
        for row in range(num_rows)
    ]


def _of_row(
    rollout: Rollout, values: TokenValues | None, row: int, decode: Callable[[list[int]], str]
) -> Record:
    length = int(rollout.length_B[row])
    tokens: Record = {
        "text": pieces(decode, rollout.response_BT[row, :length].tolist()),
        "logp": rounded(rollout.logp_sampler_BT[row, :length]),
    }
    if values is not None:
        tokens["logp_trainer"] = rounded(values.logp_BT[row, :length])
        tokens["entropy"] = rounded(values.entropy_BT[row, :length])
    advantage_T = rollout.advantage_BT[row, :length]
    mean = rounded(advantage_T.float().mean().reshape(1))[0] if length else 0.0
    advantages = rounded(advantage_T)
    if len(set(advantages)) > 1:
        tokens["advantage"] = advantages
    return {"advantage": mean, "tokens": tokens}


def rounded(values: Tensor) -> list[float]:
    """Return numbers with as many digits as a colour needs."""
    return [round(value, DIGITS) for value in values.float().tolist()]
