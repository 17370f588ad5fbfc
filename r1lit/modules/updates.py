"""Parts of an update: micro-batches, their inputs, and their metrics.

    rows of a minibatch -> micro-batches -> losses -> make_update -> metrics

P prompts   G responses per prompt   B = P*G rows   T response tokens
N tokens of an iteration that count, of all ranks
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor

from r1lit.batches import Candidates, Rollout
from r1lit.objectives import LossInputs, Objective
from r1lit.objectives.terms import covariance_N, masked_sum, mismatch_sums, num_selected
from r1lit.policy import Responses
from r1lit.ranks import of_all_ranks
from r1lit.seeding import generator

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


def responses_of(rollout: Rollout, rows_b: Tensor) -> Responses:
    """Return some rows of a rollout as models read them, as wide as the longest of them."""
    rows = rows_b.tolist()
    width = max(rollout.responses[row].num_tokens for row in rows)
    written_BT = rollout.environment_BT
    candidates = None
    if rollout.candidates is not None:
        candidates = Candidates.joined([rollout.candidates[row] for row in rows])
    return Responses(
        prompts=[rollout.prompts[row // rollout.group_size] for row in rows],
        response_BT=rollout.response_BT[rows_b, :width],
        mask_BT=rollout.mask_BT[rows_b, :width],
        environment_BT=None if written_BT is None else written_BT[rows_b, :width],
        candidates=candidates,
    )


def of_rows(rollout: Rollout, rows_b: Tensor, width: int) -> dict[str, Any]:
    """Return what a rollout holds for ``LossInputs``, by its name there, of some rows."""
    values = {
        "logp_old_BT": rollout.logp_old_BT,
        "logp_sampler_BT": rollout.logp_sampler_BT,
        "advantage_BT": rollout.advantage_BT,
        "mask_BT": rollout.loss_mask_BT,
        "correction_BT": rollout.correction_BT,
        "is_selected_BT": rollout.is_selected_BT,
    }
    return {name: None if x is None else x[rows_b, :width] for name, x in values.items()}


# metrics


LARGE_MISMATCH = 0.05  # nats; float32 has 1e-6, bfloat16 some 1e-3


class UpdateMetrics:
    """Adds up sums over tokens across micro-batches, on the device; they are read once.

    Args:
        same_weights: whether the sampler had the trainer's, so that a large mismatch is a fault.
    """

    def __init__(self, same_weights: bool = True) -> None:
        self._same_weights = same_weights
        self._sums: dict[str, Tensor] = defaultdict(lambda: torch.tensor(0.0, dtype=torch.float64))
        self._max_abs = torch.tensor(0.0)

    @torch.no_grad()
    def add(self, sums: dict[str, Tensor], inputs: LossInputs, entropy_BT: Tensor) -> None:
        """Add a micro-batch's metrics, ``LossOutputs.metrics`` among them."""
        sums = sums | {
            "entropy": masked_sum(entropy_BT, inputs.mask_BT),
            "tokens": inputs.mask_BT.sum(),
        }
        self._add(sums)

    @torch.no_grad()
    def add_mismatch(self, logp_BT: Tensor, logp_sampler_BT: Tensor, mask_BT: Tensor) -> None:
        """Add a micro-batch computed before the iteration's first update."""
        sums = mismatch_sums(logp_BT, logp_sampler_BT, mask_BT)
        largest = sums.pop("max_abs")
        self._max_abs = torch.maximum(self._max_abs.to(largest.device), largest)
        self._add({f"mismatch/{name}": value for name, value in sums.items()})
        self._add({"mismatch/tokens": mask_BT.sum()})

    def _add(self, sums: dict[str, Tensor]) -> None:
        for name, value in sums.items():
            self._sums[name] = self._sums[name].to(value.device) + value.double()

    def metrics(self) -> dict[str, float]:
        """Return the means over tokens, under their logged names; NaN where no token counted."""
        names = list(self._sums)
        values = torch.stack([self._sums[n] for n in names]).tolist() if names else []
        sums = dict(zip(names, values, strict=True))
        num_tokens = sums.pop("tokens", 0.0) or math.nan
        num_compared = sums.pop("mismatch/tokens", 0.0) or math.nan
        mismatch = {
            name: sums.pop(f"mismatch/{name}", 0.0) / num_compared
            for name in ("abs", "k3", "outside", "rho", "rho_squared")
        }
        if self._same_weights and mismatch["abs"] > LARGE_MISMATCH:
            rank_zero_warn(
                f"train/mismatch/mean_abs is above {LARGE_MISMATCH}: the log-probs of the rollout,"
                " which are used as the old policy's, differ from those of the training forward;"
                " set the trainer's precision or the model's dtype higher"
            )
        return {
            **{f"train/{name}": total / num_tokens for name, total in sums.items()},
            "train/mismatch/mean_abs": mismatch["abs"],
            "train/mismatch/max_abs": float(self._max_abs) if num_compared > 0 else math.nan,
            "train/mismatch/k3_kl": mismatch["k3"],
            "train/mismatch/share_outside": mismatch["outside"],
            "train/mismatch/effective_sample_size": mismatch["rho"] ** 2 / mismatch["rho_squared"],
        }


TOP = {"top_0.2_percent": 2e-3, "top_2_percent": 2e-2, "top_20_percent": 0.2}


@torch.no_grad()
def with_selection(
    rollout: Rollout, objective: Objective, seed: int
) -> tuple[Rollout, dict[str, float]]:
    """Return the rollout with the tokens that the objective treats apart, and metrics to log.

    The metrics are means of the covariance of log-prob and advantage over all tokens that count,
    of all ranks, and over those of the highest (2505.22617, Table 1); NaN where no token counts.
    """
    mask_BT = rollout.loss_mask_BT
    values_BT = rollout.logp_old_BT, rollout.advantage_BT
    own_2N = torch.stack([value_BT[mask_BT].float() for value_BT in values_BT])
    ranks = [values.to(own_2N.device) for values in of_all_ranks(own_2N.cpu())]
    logp_N, advantage_N = torch.cat(ranks, 1)
    cov_N = covariance_N(logp_N, advantage_N)
    metrics = {"train/covariance/mean": float(cov_N.mean()) if len(cov_N) else math.nan}
    sorted_N = cov_N.sort(descending=True).values
    for name, share in TOP.items():
        top = sorted_N[: num_selected(share, len(cov_N))]
        metrics[f"train/covariance/{name}"] = float(top.mean()) if len(top) else math.nan
    random = generator(seed, "selected", rollout.iteration)
    selected_N = objective.select_N(torch.where(advantage_N == 0, -math.inf, cov_N), random)
    if selected_N is None:
        return rollout, metrics
    rank = dist.get_rank() if len(ranks) > 1 else 0
    own_N = selected_N.split([values.shape[1] for values in ranks])[rank]
    selected_BT = torch.zeros_like(mask_BT).masked_scatter(mask_BT, own_N)
    metrics["train/covariance/selected"] = float(selected_N.float().mean())
    return replace(rollout, is_selected_BT=selected_BT), metrics
