"""The terms of an objective: masks, log-ratios, token weights, KL estimators, diagnostics.

    B rows (responses)   T response tokens   |o| tokens of a response   V vocabulary
    B1 one number a row, kept as a column

Masks. Values are replaced by ``torch.where`` *before* any ``exp``: a NaN multiplied by 0 is still a
NaN, and so is its gradient.

Log-ratios of the policy to the old policy: per token, per whole output, per geometric mean. All
three return B x T, the last two with one value a row; padding gives 0, a ratio of 1. Worked
example, one response with token log-ratios (0.1, 0.3): per token (0.1, 0.3), per output (0.4, 0.4),
geometric mean (0.2, 0.2).

Token weights (loss aggregation): how much a token counts in its minibatch, the papers' three
normalisers. Each function takes any rows of the minibatch and the totals of the whole of it, so
that the weights of a micro-batch are those it has in the minibatch. Worked example, two responses
of 1 and 3 tokens: per response (1/2) and (1/6, 1/6, 1/6); per token 1/4 each; per budget of 4
tokens 1/8 each.

KL estimators, of KL(policy || reference) from one sample. Schulman, "Approximating KL divergence"
(2020). With d = log pi_ref - log pi at a token sampled from the policy: k1 = -d, k2 = d^2 / 2, k3 =
e^d - d - 1. As *numbers* k1 and k3 are unbiased and k2 is nearly so; k2 and k3 are never negative.
As *terms of a loss* they are something else, since the gradient does not reach the sampling. Each
docstring says what its expected gradient is on policy; these three carry no ratio, so on tokens of
an old policy each is biased by as much as the two differ. ``unbiased_k3`` carries it. Worked
example, log pi = log 0.5, log pi_ref = log 0.25: d = log 0.5 = -0.6931, k1 = 0.6931, k2 = 0.2402,
k3 = 0.5 + 0.6931 - 1 = 0.1931; at log pi_old = log 0.4, unbiased k3 = 1.25 * 0.1931 = 0.2414.

Diagnostics: what to watch while an objective is maximised; they carry no gradient. Where a clip
acts is given by the objective itself (``Objective.is_clipped_BT``). Means of micro-batches do not
average into the mean of their minibatch unless they have equally many tokens, so add up
``masked_sum`` and divide once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import torch
from torch import Tensor

KLName = Literal["k1", "k2", "k3", "unbiased_k3"]
LARGEST_LOG_RHO = 20.0  # so that a square fits float32


# masks


def hide_padding(value_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Return ``value_BT`` with 0 where the mask is false; the gradient there is exactly 0."""
    return torch.where(mask_BT, value_BT, 0.0)


def hide_zero_BT(value_BT: Tensor, factor_BT: Tensor) -> Tensor:
    """Return ``value_BT`` with 0 where its factor is 0: 0 times an infinite log-prob is a NaN."""
    return torch.where(factor_BT == 0, 0.0, value_BT)


def divisor(mean_count: float) -> float:
    """Return the divisor of a sum over tokens: their mean number over ranks, 1 if it is 0.

    The mean is below 1 where fewer tokens count than there are ranks.

    >>> divisor(12.5), divisor(0.25), divisor(0.0)
    (12.5, 0.25, 1.0)
    """
    return mean_count or 1.0


def row_sum_B1(value_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Return the sum over each response."""
    return hide_padding(value_BT, mask_BT).sum(1, keepdim=True)


def row_length_B1(mask_BT: Tensor) -> Tensor:
    """Return ``|o_i|``, the tokens of each response; 1 for an empty one, which then weighs 0."""
    return mask_BT.sum(1, keepdim=True).clamp(min=1)


# log-ratios


def token_log_ratio_BT(logp_BT: Tensor, logp_old_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Return log pi_theta(o_t) / pi_old(o_t), of GRPO (2402.03300, Eq. 3)."""
    return hide_padding(logp_BT, mask_BT) - hide_padding(logp_old_BT, mask_BT)


# token weights


def per_response_BT(mask_BT: Tensor, *, num_rows: float, dtype: torch.dtype, **_: float) -> Tensor:
    """Return 1 / (rows * |o|): every response counts alike, so a long one's tokens count less."""
    assert num_rows > 0, num_rows
    return mask_BT.to(dtype) / (num_rows * row_length_B1(mask_BT).to(dtype))


def per_token_BT(mask_BT: Tensor, *, num_tokens: float, dtype: torch.dtype, **_: float) -> Tensor:
    """Return 1 / tokens: every token of the minibatch counts alike."""
    assert num_tokens > 0, num_tokens
    return mask_BT.to(dtype) / num_tokens


def per_budget_BT(
    mask_BT: Tensor, *, num_rows: float, max_tokens: int, dtype: torch.dtype, **_: float
) -> Tensor:
    """Return 1 / (rows * max_tokens): every token counts alike, and alike in every minibatch."""
    assert num_rows > 0, num_rows
    return mask_BT.to(dtype) / (num_rows * max_tokens)


# KL estimators


def k1_BT(logp_BT: Tensor, logp_ref_BT: Tensor) -> Tensor:
    """Return k1 = log pi - log pi_ref: unbiased, any sign, large variance.

    Gradient in a loss: grad log pi, without the reference in it. Its expectation on policy is 0: as
    a penalty k1 does nothing but add noise. It belongs in the reward (PPO's r - beta k1), detached.
    """
    return logp_BT - logp_ref_BT


def k2_BT(logp_BT: Tensor, logp_ref_BT: Tensor) -> Tensor:
    """Return k2 = (log pi - log pi_ref)^2 / 2: biased as a number, never negative.

    Gradient in a loss: (log pi - log pi_ref) grad log pi, whose expectation on policy is exactly
    the gradient of KL(pi || pi_ref): the right one.
    """
    return 0.5 * (logp_BT - logp_ref_BT).square()


def k3_BT(logp_BT: Tensor, logp_ref_BT: Tensor) -> Tensor:
    """Return k3 = pi_ref/pi - log(pi_ref/pi) - 1: D_KL of GRPO (2402.03300, Eq. 4) and of R1.

    Gradient in a loss: (1 - pi_ref/pi) grad log pi, whose expectation on policy is the gradient of
    KL(pi_ref || pi), the *other* direction; the two agree to first order near the reference. Off
    policy (the papers sample from pi_old and put no ratio before D_KL) it is biased besides. A
    token that the reference likes far more than the policy gives e^d: unbounded.
    """
    d_BT = logp_ref_BT - logp_BT
    return torch.expm1(d_BT) - d_BT


def unbiased_k3_BT(logp_BT: Tensor, logp_ref_BT: Tensor, logp_old_BT: Tensor) -> Tensor:
    """Return pi/pi_old k3: the unbiased KL estimate of DeepSeek-V3.2 (2512.02556, Eq. 7).

    Gradient in a loss: pi/pi_old (log pi - log pi_ref) grad log pi, whose expectation over tokens
    of the *old* policy is exactly the gradient of KL(pi || pi_ref). The ratio is the token's own in
    every objective, and bounded at e^20, so that it stays finite.
    """
    ratio_BT = (logp_BT - logp_old_BT).clamp(max=LARGEST_LOG_RHO).exp()
    return ratio_BT * k3_BT(logp_BT, logp_ref_BT)


KL_ESTIMATORS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "k1": k1_BT,
    "k2": k2_BT,
    "k3": k3_BT,
}
"""KL estimators without a ratio."""


# diagnostics


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


def entropy_BT(logits_BTV: Tensor) -> Tensor:
    """Return the entropy of each next-token distribution, in nats, computed in float32 or wider.

    Logits of minus infinity are tokens of probability 0, which add 0. Divide the logits by the
    temperature first for the entropy of what was sampled. It carries a gradient, as a bonus needs.
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


def covariance_N(logp_N: Tensor, advantage_N: Tensor) -> Tensor:
    """Return each token's share of the covariance of log-prob and advantage.

    Cui et al. (2505.22617, Eq. 10); ``r1lit.objectives.covariance`` has what it is for.
    """
    return (logp_N - logp_N.mean()) * (advantage_N - advantage_N.mean())


def num_selected(share: float, num_tokens: int) -> int:
    """Return how many tokens a share comes to: one at least, as in the authors' code."""
    return min(num_tokens, max(1, int(share * num_tokens)))
