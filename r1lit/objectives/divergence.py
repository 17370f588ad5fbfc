"""How far a student's next-token distributions are from its teacher's.

    K tokens   V outcomes of each: the vocabulary, or its most likely tokens and the rest as one

P is the teacher, Q the student, in nats. Agarwal et al., "On-Policy Distillation of Language
Models" (GKD, 2306.13649), Section 2. Which tokens they are compared at is another choice: those of
the teacher's responses, or of the student's own.

Worked example, P = (1/2, 1/2), Q = (3/4, 1/4): forward KL = 1/2 ln 2/3 + 1/2 ln 2 = 0.1438,
reverse KL = 3/4 ln 3/2 + 1/4 ln 1/2 = 0.1308, JSD(1/2) = 0.0338.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor

LEAST_LOGP = -1e4
"""What a log-prob of minus infinity counts as: its probability is 0, and nothing becomes NaN."""


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
