"""Rewards with the KL penalty in them, and advantages scaled over an iteration.

P prompts   G responses per prompt   B = P*G rows   T response tokens
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from r1lit.batches import Rollout
from r1lit.objectives.terms import divisor, hide_padding, k1_BT


def with_kl_in_reward(
    rollout: Rollout, logp_ref_BT: Tensor, beta: float
) -> tuple[Rollout, dict[str, float]]:
    """Return the rollout with -beta (log pi_old - log pi_ref) in the reward of each token.

    The KL of InstructGPT's reward (2203.02155, Eq. 2), of RLOO and of REINFORCE++, by k1. Also
    returned are means to log: of the penalty over the tokens that count, NaN where none does, and
    of the KL over responses.
    """
    penalty_BT = hide_padding(beta * k1_BT(rollout.logp_old_BT, logp_ref_BT), rollout.sampled_BT)
    paid_BT = 0.0 if rollout.reward_BT is None else rollout.reward_BT
    return replace(rollout, reward_BT=paid_BT - penalty_BT), {
        "train/kl_in_reward": float(penalty_BT[rollout.loss_mask_BT].mean()),
        "train/kl_per_response": float(penalty_BT.sum(-1).mean()) / beta,
    }


def whitened(rollout: Rollout, mean_over_ranks: Callable[[Tensor], float]) -> Rollout:
    """Return the rollout with advantages of mean 0 and variance 1 over the tokens that count.

    Args:
        rollout: with advantages.
        mean_over_ranks: of a sum; all ranks are whitened together.
    """
    mask_BT = rollout.loss_mask_BT
    num_tokens = divisor(mean_over_ranks(mask_BT.sum()))
    mean = mean_over_ranks(hide_padding(rollout.advantage_BT, mask_BT).sum()) / num_tokens
    centred_BT = hide_padding(rollout.advantage_BT - mean, mask_BT)
    variance = mean_over_ranks(centred_BT.square().sum()) / num_tokens
    return replace(rollout, advantage_BT=centred_BT / (math.sqrt(variance) + 1e-8))
