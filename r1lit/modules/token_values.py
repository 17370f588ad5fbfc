"""What the training forward says of each token of a rollout, before any update."""

from __future__ import annotations

import torch

from r1lit.batches import Rollout, TokenValues
from r1lit.modules.micro_batches import responses_of
from r1lit.policy import LogProbs, Policy, evaluating


@torch.no_grad()
def token_values(
    policy: Policy, rollout: Rollout, num_rows: int, temperature: float
) -> TokenValues:
    """Return log-probs and entropies of a rollout's first ``num_rows`` responses.

    They are those of softmax(logits / temperature) under the policy's present weights. A row is
    computed at a time: a few rows are wanted, to be looked at.
    """
    num_rows = min(num_rows, len(rollout.responses))
    logp_BT = torch.zeros_like(rollout.logp_sampler_BT[:num_rows])
    entropy_BT = torch.zeros_like(logp_BT)
    with evaluating(policy):
        for row in range(num_rows):
            length = int(rollout.length_B[row])
            responses = responses_of(rollout, torch.tensor([row], device=logp_BT.device))
            output = policy(responses, LogProbs(temperature=temperature))
            logp_BT[row, :length] = output.logp_K
            entropy_BT[row, :length] = output.entropy_K
    return TokenValues(logp_BT=logp_BT, entropy_BT=entropy_BT)
