"""Parts of an update: micro-batches, their inputs, and their metrics.

    rows of a minibatch -> micro-batches -> losses -> make_update -> metrics

P prompts   G responses per prompt   B = P*G rows   T response tokens
N tokens of an iteration that count, of all ranks
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from r1lit.batches import Rollout
from r1lit.objectives import LossInputs
from r1lit.objectives.terms import masked_sum

# micro-batches


# attention lays a shared prompt out for each row, which takes this part of the memory that a
# token of its own would
PROMPT_COPIES = 8


def micro_batches(
    rollout: Rollout, rows_b: Tensor, max_tokens: int, *, packed: bool, skip: bool
) -> list[Tensor]:
    """Split a minibatch of rows of a rollout; see ``split_rows``.

    Args:
        rollout: of the iteration.
        rows_b: the minibatch.
        max_tokens: of a micro-batch.
        packed: whether rows are computed packed.
        skip: leave out rows of advantage 0, whose loss and gradient are exactly 0.

    Returns:
        Indices into ``rows_b`` of each micro-batch.
    """
    chosen = torch.arange(len(rows_b), device=rows_b.device)
    if skip:
        counts_bT = rollout.loss_mask_BT[rows_b]
        moving = ((rollout.advantage_BT[rows_b] != 0) & counts_bT).any(-1)
        # one row at least: ranks synchronise their gradients in a backward pass
        chosen = chosen[moving] if bool(moving.any()) else chosen[:1]
    rows = rows_b[chosen].tolist()
    groups = [row // rollout.group_size for row in rows]
    batches = split_rows(
        groups,
        [len(rollout.prompts[group]) for group in groups],
        [rollout.responses[row].num_tokens for row in rows],
        max_tokens,
        packed=packed,
    )
    return [chosen[torch.tensor(part, device=chosen.device)] for part in batches]


def split_rows(
    groups: Sequence[int],
    prompt_lengths: Sequence[int],
    response_lengths: Sequence[int],
    max_tokens: int,
    *,
    packed: bool,
) -> list[list[int]]:
    """Split rows into micro-batches of at most ``max_tokens`` tokens, and of at least one row.

    Packed, rows of one group stay together; their prompt counts once, and an eighth for each
    further row. Otherwise rows of like length stay together, longest first, and each counts as long
    as the longest.

    >>> split_rows([0, 1, 0], [2, 2, 2], [3, 1, 1], max_tokens=5, packed=True)
    [[0, 2], [1]]
    >>> split_rows([0, 1, 0], [2, 2, 2], [3, 1, 1], max_tokens=6, packed=False)
    [[0], [1, 2]]

    Returns:
        Indices of the rows of each micro-batch.
    """
    if packed:
        order = sorted(range(len(groups)), key=lambda row: groups[row])
    else:
        lengths = [p + r for p, r in zip(prompt_lengths, response_lengths, strict=True)]
        order = sorted(range(len(groups)), key=lambda row: -lengths[row])
    batches: list[list[int]] = []
    taken = 0
    for row in order:
        if packed:
            # the last token of a response predicts nothing and is not computed
            shared = bool(batches) and groups[batches[-1][-1]] == groups[row]
            tokens = response_lengths[row] - 1
            tokens += prompt_lengths[row] // (PROMPT_COPIES if shared else 1)
        else:
            tokens = lengths[batches[-1][0]] if batches else lengths[row]
        if not batches or taken + tokens > max_tokens:
            batches.append([])
            taken = 0
            tokens = prompt_lengths[row] + response_lengths[row] - packed
        batches[-1].append(row)
        taken += tokens
    return batches


def loss_inputs_of_rows(rollout: Rollout, rows_b: Tensor, width: int) -> dict[str, Any]:
    """Return the rollout's values that ``LossInputs`` needs, by their names there, of some rows."""
    values_BT = {
        "logp_old_BT": rollout.logp_old_BT,
        "logp_sampler_BT": rollout.logp_sampler_BT,
        "advantage_BT": rollout.advantage_BT,
        "mask_BT": rollout.loss_mask_BT,
        "weight_BT": rollout.weight_BT,
    }
    values = {name: None if x is None else x[rows_b, :width] for name, x in values_BT.items()}
    extra_BT = {name: x_BT[rows_b, :width] for name, x_BT in rollout.extra_BT.items()}
    return values | {"extra_BT": extra_BT}


# metrics


class UpdateMetrics:
    """Adds up sums over tokens across micro-batches, on the device; they are read once."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = defaultdict(lambda: torch.tensor(0.0, dtype=torch.float64))

    @torch.no_grad()
    def add(self, sums: dict[str, Tensor], inputs: LossInputs, entropy_BT: Tensor) -> None:
        """Add a micro-batch's metrics, ``LossOutputs.metrics`` among them."""
        sums = sums | {
            "entropy": masked_sum(entropy_BT, inputs.mask_BT),
            "tokens": inputs.mask_BT.sum(),
        }
        for name, value in sums.items():
            self._sums[name] = self._sums[name].to(value.device) + value.double()

    def metrics(self) -> dict[str, float]:
        """Return the means over tokens, under their logged names; NaN where no token counted."""
        names = list(self._sums)
        values = torch.stack([self._sums[n] for n in names]).tolist() if names else []
        sums = dict(zip(names, values, strict=True))
        num_tokens = sums.pop("tokens", 0.0) or math.nan
        return {f"train/{name}": total / num_tokens for name, total in sums.items()}
