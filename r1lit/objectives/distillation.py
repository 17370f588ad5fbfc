"""Distillation: divergences between next-token distributions of teacher and student.

    K tokens   V outcomes of each: the vocabulary, or its most likely tokens and the rest as one
    C tokens that are outcomes of their own   R = C + 1 outcomes

P is the teacher, Q the student, in nats. Agarwal et al., "On-Policy Distillation of Language
Models" (GKD, 2306.13649), Section 2. The responses whose tokens are compared are a separate choice:
the teacher's, or the student's own.

Worked example, P = (1/2, 1/2), Q = (3/4, 1/4): forward KL = 1/2 ln 2/3 + 1/2 ln 2 = 0.1438,
reverse KL = 3/4 ln 3/2 + 1/4 ln 1/2 = 0.1308, JSD(1/2) = 0.0338.

Reverse KL from the sampled token alone: a teacher may return the log-prob of no other token. Then
KL(Q || P) over the vocabulary cannot be computed, but its gradient can be estimated. It is the
policy gradient with the advantage A = log P(y) - log Q(y) at each token, for its own position only.
Worked example, Q(y) = 1/2, P(y) = 1/4: A = ln 1/2 = -0.6931, the loss has the gradient +0.6931 grad
log Q(y): the token becomes less likely. Its value is 0.6931^2 / 2 = 0.2402.

A distribution reduced to its most likely tokens, with the rest as one outcome: a server returns the
log-probs of a few tokens, not of all. Merging outcomes never raises a KL or a JSD (the
data-processing inequality). So a divergence over R outcomes is a lower bound of that over V. The
two are equal where both distributions divide the rest in the same proportions. Its gradient moves
probability between the C tokens and the rest as a whole. Worked example, V = 3, logits of
probabilities (1/2, 1/4, 1/4), C = 1 with token 0: (1/2 | 1/2).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from r1lit.objectives.terms import k2_BT

LEAST_LOGP = -1e4
"""Value in place of a log-prob of -inf: its probability is 0, and nothing becomes NaN."""
LEAST_REST = 1e-6
"""The least probability of the rest: servers round, and their C tokens may add up to above 1."""


class Divergence(ABC):
    """A divergence D of two distributions, 0 where they are equal and positive elsewhere."""

    @abstractmethod
    def __call__(self, logp_student_KV: Tensor, logp_teacher_KV: Tensor) -> Tensor:
        """Return D (K) in nats; both arguments are log-probs that add up to 1 over V.

        The teacher is a constant: its log-probs are detached.
        """


class ForwardKL(Divergence):
    """KL(P || Q) = sum_v P(v) log P(v)/Q(v): the student must cover all that the teacher does.

    Supervised KD of GKD; Hinton et al. (1503.02531). Its gradient in the student's logits is Q - P.
    With a teacher that is sure of one token it is that token's cross-entropy, which is SFT.
    """

    def __call__(self, logp_student_KV: Tensor, logp_teacher_KV: Tensor) -> Tensor:
        """Return KL(teacher || student)."""
        return kl_K(logp_teacher_KV.detach(), logp_student_KV)


class ReverseKL(Divergence):
    """KL(Q || P) = sum_v Q(v) log Q(v)/P(v): the student must stay within what the teacher does.

    MiniLLM (2306.08543) and GKD. It is exact over the outcomes; ``SampledReverseKL`` estimates it
    from one token. Probability where the teacher has almost none costs the student most.
    """

    def __call__(self, logp_student_KV: Tensor, logp_teacher_KV: Tensor) -> Tensor:
        """Return KL(student || teacher)."""
        return kl_K(logp_student_KV, logp_teacher_KV.detach())


class GeneralizedJSD(Divergence):
    """JSD_beta(P || Q) = beta KL(P || M) + (1 - beta) KL(Q || M), M = beta P + (1 - beta) Q.

    GKD, Section 2. Bounded, unlike the two KLs. Towards beta = 0 it becomes beta KL(P || Q),
    towards 1 it becomes (1 - beta) KL(Q || P): it vanishes at both ends, where ``ForwardKL`` and
    ``ReverseKL`` are what is meant.

    Args:
        beta: between 0 and 1, both left out. GKD tries 0.1, 0.5 and 0.9.
    """

    def __init__(self, beta: float = 0.5) -> None:
        if not 0 < beta < 1:
            raise ValueError(
                f"beta={beta}: must be above 0 and below 1; ForwardKL and ReverseKL are the ends"
            )
        self.beta = beta

    def __call__(self, logp_student_KV: Tensor, logp_teacher_KV: Tensor) -> Tensor:
        """Return JSD_beta(teacher || student)."""
        student_KV, teacher_KV = _finite(logp_student_KV), _finite(logp_teacher_KV.detach())
        mixture_KV = torch.logaddexp(
            teacher_KV + math.log(self.beta), student_KV + math.log1p(-self.beta)
        )
        return self.beta * kl_K(teacher_KV, mixture_KV) + (1 - self.beta) * kl_K(
            student_KV, mixture_KV
        )


def kl_K(logp_KV: Tensor, logq_KV: Tensor) -> Tensor:
    """Return KL(p || q) = sum_v p(v) (log p(v) - log q(v)), with ``LEAST_LOGP`` for log 0."""
    logp_KV, logq_KV = _finite(logp_KV), _finite(logq_KV)
    return (logp_KV.exp() * (logp_KV - logq_KV)).sum(-1)


def _finite(logp_KV: Tensor) -> Tensor:
    return logp_KV.clamp(min=LEAST_LOGP)


class SampledReverseKL:
    """-A log Q(y) with A = log P(y) - log Q(y) as a constant, averaged: grad KL(Q || P) on policy.

    Written as k2 = (log Q - log P)^2 / 2, which has exactly this gradient (``k2_BT``)
    and is never negative. Right in expectation only where the student sampled the token at the
    temperature of these log-probs, without top-k or top-p. What a token does to later ones is left
    out, as in GKD, which does not differentiate through the sampling either.
    """

    def __call__(self, logp_student_K: Tensor, logp_teacher_K: Tensor) -> Tensor:
        """Return k2 of each token."""
        return k2_BT(logp_student_K, logp_teacher_K.detach())


def top_and_rest_KR(logp_KV: Tensor, token_KC: Tensor) -> Tensor:
    """Return log-probs of the tokens ``token_KC`` and, last, of all others together.

    ``token_KC`` may repeat its first token to fill a row: repetitions count once, with minus
    infinity.
    """
    chosen_KC = logp_KV.gather(-1, token_KC)
    others_KV = logp_KV.scatter(-1, token_KC, -torch.inf)
    rest_K1 = others_KV.exp().sum(-1, keepdim=True).clamp(min=LEAST_REST).log()
    return torch.cat([chosen_KC.masked_fill(repeated_KC(token_KC), -torch.inf), rest_K1], -1)


def add_rest_KR(logp_KC: Tensor, token_KC: Tensor) -> Tensor:
    """Return log-probs of C tokens with that of all others appended: log(1 - their sum)."""
    logp_KC = logp_KC.masked_fill(repeated_KC(token_KC), -torch.inf)
    rest_K1 = (1 - logp_KC.exp().sum(-1, keepdim=True)).clamp(min=LEAST_REST).log()
    return torch.cat([logp_KC, rest_K1], -1)


def repeated_KC(token_KC: Tensor) -> Tensor:
    """Return where a row repeats its first token."""
    repeated = token_KC == token_KC[:, :1]
    repeated[:, 0] = False
    return repeated
