"""The three one-sample estimators of KL(policy || reference), per token.

    B rows   T response tokens

Schulman, "Approximating KL divergence" (2020). With d = log pi_ref - log pi at a token sampled from
the policy: k1 = -d, k2 = d^2 / 2, k3 = e^d - d - 1. As *numbers* k1 and k3 are unbiased and k2 is
nearly so; k2 and k3 are never negative. As *terms of a loss* they are something else, since the
gradient does not reach the sampling. Each docstring says what its expected gradient is on policy;
none carries a ratio, so on tokens of an old policy each is biased by as much as the two differ.

Worked example, log pi = log 0.5, log pi_ref = log 0.25: d = log 0.5 = -0.6931, k1 = 0.6931,
k2 = 0.2402, k3 = 0.5 + 0.6931 - 1 = 0.1931.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import torch
from torch import Tensor

KLName = Literal["k1", "k2", "k3"]


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


KL_ESTIMATORS: Mapping[KLName, Callable[[Tensor, Tensor], Tensor]] = {
    "k1": k1_BT,
    "k2": k2_BT,
    "k3": k3_BT,
}
