"""What to watch while an objective is maximised; nothing here carries a gradient.

    B rows (responses)   T response tokens   V vocabulary

Functions of the objective's own arguments; where a clip acts is given by the objective itself
(``Objective.is_clipped_BT``). Means of micro-batches do not average into the mean of their
minibatch unless they hold equally many tokens, so add up ``masked_sum`` and divide once.
"""

from __future__ import annotations

import torch
from torch import Tensor

from r1lit.objectives.kl import k3_BT
from r1lit.objectives.masking import hide_padding

LARGEST_LOG_RHO = 20.0  # so that a square fits float32


@torch.no_grad()
def masked_sum(value_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Return the sum over tokens; padding may hold anything."""
    return hide_padding(value_BT, mask_BT).sum()


@torch.no_grad()
def approx_kl_BT(logp_BT: Tensor, logp_old_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Return KL(old policy || policy) in nats, by k3 on the old policy's own tokens.

    Its mean is unbiased and never negative, since these tokens *are* samples of the first of the
    two. Padding is 0.
    """
    logp_BT, logp_old_BT = hide_padding(logp_BT, mask_BT), hide_padding(logp_old_BT, mask_BT)
    return k3_BT(logp_old_BT, logp_BT)


@torch.no_grad()
def reference_kl_BT(logp_BT: Tensor, logp_ref_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Return the D_KL of GRPO, KL(policy || reference) by k3, in nats. Padding is 0."""
    logp_BT, logp_ref_BT = hide_padding(logp_BT, mask_BT), hide_padding(logp_ref_BT, mask_BT)
    return k3_BT(logp_BT, logp_ref_BT)


@torch.no_grad()
def entropy_BT(logits_BTV: Tensor) -> Tensor:
    """Return the entropy of each next-token distribution, in nats, computed in float32 or wider.

    Logits of minus infinity are tokens of probability 0, which add 0. Divide the logits by the
    temperature first for the entropy of what was sampled.
    """
    wide = torch.promote_types(logits_BTV.dtype, torch.float32)
    logp_BTV = logits_BTV.to(wide).log_softmax(-1)
    finite_BTV = torch.where(logp_BTV == -torch.inf, 0.0, logp_BTV)
    return -(logp_BTV.exp() * finite_BTV).sum(-1)


@torch.no_grad()
def mismatch_sums(logp_BT: Tensor, logp_sampler_BT: Tensor, mask_BT: Tensor) -> dict[str, Tensor]:
    """Return how far the trainer's log-probs are from the sampler's, as sums over tokens.

    For the *same* weights: what is left is the difference between two programs (rollout engine and
    trainer, bf16 and fp32), and rho = pi / pi_sampler should be 1. ``abs`` and ``max_abs`` are of
    log rho, in nats; ``k3`` is KL(sampler || policy); ``outside`` counts rho outside [0.5, 2];
    ``rho`` and ``rho_squared`` make the effective sample size.
    """
    log_rho_BT = hide_padding(logp_BT, mask_BT) - hide_padding(logp_sampler_BT, mask_BT)
    rho_BT = log_rho_BT.clamp(-LARGEST_LOG_RHO, LARGEST_LOG_RHO).exp()
    return {
        "abs": log_rho_BT.abs().sum(),
        "max_abs": log_rho_BT.abs().amax(),
        "k3": masked_sum(rho_BT - log_rho_BT - 1, mask_BT),
        "outside": masked_sum(((rho_BT < 0.5) | (rho_BT > 2.0)).float(), mask_BT),
        "rho": masked_sum(rho_BT, mask_BT),
        "rho_squared": masked_sum(rho_BT**2, mask_BT),
    }
