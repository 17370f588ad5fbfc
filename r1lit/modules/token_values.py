"""Numbers of each token, from a forward pass without gradient.

B rows (responses)   T response tokens
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from lightning.pytorch.strategies import Strategy
from torch import Tensor

from r1lit.batches import Rollout, TokenValues
from r1lit.modules.sharding import idle_forwards
from r1lit.modules.updates import micro_batches
from r1lit.policy import LogProbs, Policy, Responses, evaluating, is_packed
from r1lit.rollout.model_inputs import model_inputs


@torch.no_grad()
def per_token_BT(
    rollout: Rollout,
    model: Any,
    compute: Callable[[Responses], Tensor],
    max_tokens: int,
    packed: bool,
    strategy: Strategy,
) -> Tensor:
    """Return a number for each sampled token of all responses ``[B, T]``, 0 elsewhere.

    It is computed without dropout, like what the engine sampled.

    Args:
        rollout: of the iteration.
        model: whose forward pass ``compute`` makes, once for each micro-batch.
        compute: returns a number for each token (K) of some responses.
        max_tokens: of a micro-batch.
        packed: whether rows are computed packed.
        strategy: under which ranks with fewer micro-batches wait for others.
    """
    value_BT = torch.zeros_like(rollout.logp_sampler_BT)
    rows_B = torch.arange(len(rollout.responses), device=value_BT.device)
    chunks = micro_batches(rollout, rows_B, max_tokens, packed=packed, skip=False)
    idle_forwards(model, len(chunks), strategy)
    with evaluating(model):
        for rows_b in (rows_B[chunk] for chunk in chunks):
            responses = model_inputs(rollout, rows_b)
            value_bT = responses.to_rows(compute(responses))
            value_BT[rows_b, : value_bT.shape[1]] = value_bT
    return value_BT


@torch.no_grad()
def token_values(
    policy: Policy, rollout: Rollout, num_rows: int, temperature: float, max_tokens: int
) -> TokenValues:
    """Return log-probs and entropies of a rollout's first ``num_rows`` responses.

    They are those of softmax(logits / temperature) under the policy's present weights, computed in
    micro-batches of up to ``max_tokens``.
    """
    num_rows = min(num_rows, len(rollout.responses))
    logp_BT = torch.zeros_like(rollout.logp_sampler_BT[:num_rows])
    entropy_BT = torch.zeros_like(logp_BT)
    rows_B = torch.arange(num_rows, device=logp_BT.device)
    chunks = micro_batches(rollout, rows_B, max_tokens, packed=is_packed(policy), skip=False)
    with evaluating(policy):
        for rows_b in (rows_B[chunk] for chunk in chunks):
            responses = model_inputs(rollout, rows_b)
            output = policy(responses, LogProbs(temperature=temperature))
            row_K, place_K = responses.mask_BT.nonzero(as_tuple=True)
            logp_BT[rows_b[row_K], place_K] = output.logp_K
            entropy_BT[rows_b[row_K], place_K] = output.entropy_K
    return TokenValues(logp_BT=logp_BT, entropy_BT=entropy_BT)
