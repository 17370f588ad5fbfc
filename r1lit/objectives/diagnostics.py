"""What to watch while an objective is maximised; nothing here carries a gradient.

    B rows (responses)   T response tokens   V vocabulary

Functions of the objective's own arguments; where a clip acts, the objective itself says
(``Objective.clip_acts_BT``). Means are over the tokens where ``mask_BT`` is true:
means of micro-batches do not average into the mean of their minibatch unless they hold equally
many, so pass the whole minibatch, or add up ``masked_sum`` and divide once. No tokens give 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

from r1lit.objectives.kl import k3_BT
from r1lit.objectives.masking import hide_padding


@torch.no_grad()
def masked_sum(value_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Return the sum over tokens; padding may hold anything."""
    return hide_padding(value_BT, mask_BT).sum()


@torch.no_grad()
def masked_mean(value_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Return the mean over tokens; padding may hold anything."""
    return masked_sum(value_BT, mask_BT) / mask_BT.sum().clamp(min=1)


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
def logp_mismatch(logp_BT: Tensor, logp_old_BT: Tensor, mask_BT: Tensor) -> dict[str, Tensor]:
    """Return how far log-probs recomputed by the policy are from those of the sampler.

    For the *same* weights: what is left is the difference between two programs (rollout engine and
    trainer, bf16 and fp32), and the ratio should be 1. ``max_abs`` and ``mean_abs`` are of
    log pi - log pi_old, in nats; ``mean_ratio`` is the mean of pi / pi_old.
    """
    difference_BT = hide_padding(logp_BT, mask_BT) - hide_padding(logp_old_BT, mask_BT)
    return {
        "max_abs": difference_BT.abs().amax(),
        "mean_abs": masked_mean(difference_BT.abs(), mask_BT),
        "mean_ratio": masked_mean(difference_BT.exp(), mask_BT),
    }
