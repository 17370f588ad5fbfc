"""Reverse KL from the sampled token alone: the teacher's log-prob as a reward.

    K tokens, each sampled by the student

Where a teacher returns the log-prob of the token and of no other, KL(Q || P) over the vocabulary
cannot be computed, but its gradient can be estimated: that of policy gradient with the advantage
A = log P(y) - log Q(y) at each token, on its own position alone.

Worked example, Q(y) = 1/2, P(y) = 1/4: A = ln 1/2 = -0.6931, the loss has the gradient
+0.6931 grad log Q(y): the token becomes less likely. Its value is 0.6931^2 / 2 = 0.2402.
"""

from __future__ import annotations

from torch import Tensor

from r1lit.objectives.kl import k2_BT


class SampledReverseKL:
    """-A log Q(y) with A = log P(y) - log Q(y) as a constant, averaged: grad KL(Q || P) on policy.

    Written as k2 = (log Q - log P)^2 / 2, which has exactly this gradient (``r1lit.objectives.kl``)
    and is never negative. Right in expectation only where the student sampled the token at the
    temperature of these log-probs, without top-k or top-p. What a token does to later ones is left
    out, as in GKD, which does not differentiate through the sampling either.
    """

    def __call__(self, logp_student_K: Tensor, logp_teacher_K: Tensor) -> Tensor:
        """Return k2 of each token."""
        return k2_BT(logp_student_K, logp_teacher_K.detach())
