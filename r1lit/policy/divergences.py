"""Divergences of a policy from a teacher's scores.

K predicted tokens   V vocabulary   C top tokens of a teacher
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from r1lit.objectives import Divergence, SampledReverseKL
from r1lit.objectives.distillation import add_rest_KR, top_and_rest_KR
from r1lit.policy.chunks import COPIES, token_chunks
from r1lit.policy.outputs import Compute
from r1lit.policy.predictions import PolicyOutput, Predictions


@dataclass(frozen=True, kw_only=True)
class Divergences(Compute):
    """``divergence_K`` from a teacher; with ``with_logp`` also ``logp_K`` at temperature 1."""

    teacher: Scores
    divergence: Divergence | SampledReverseKL
    temperature: float = 1.0
    with_logp: bool = False

    def __call__(self, predictions: Predictions, target_K: Tensor) -> PolicyOutput:
        """Return the divergences, and log-probs if requested."""
        return PolicyOutput(
            divergence_K=divergence_K(
                predictions, self.teacher, target_K, self.divergence, self.temperature
            ),
            logp_K=predictions.logp(target_K) if self.with_logp else None,
        )


class Scores(ABC):
    """A teacher's next-token distributions at K tokens; constants."""

    known_K: Tensor | None = None
    """Where there are any; elsewhere the divergence is 0. None: at all tokens."""

    @abstractmethod
    def distributions(
        self, logits_kV: Tensor, chunk: slice, temperature: float
    ) -> tuple[Tensor, Tensor]:
        """Return log-probs of student (from its logits) and teacher over the same X outcomes."""

    @abstractmethod
    def target_logp(self, target_K: Tensor, temperature: float) -> Tensor:
        """Return the teacher's log-probs of the targets."""


@dataclass(frozen=True, kw_only=True)
class TopScores(Scores):
    """Scores of a server: log-probs of C tokens each, at temperature 1; X = C + 1.

    ``token_KC`` begins with the target; what repeats it fills up the row.
    """

    token_KC: Tensor
    logp_KC: Tensor
    known_K: Tensor | None = None

    def distributions(
        self, logits_kV: Tensor, chunk: slice, temperature: float
    ) -> tuple[Tensor, Tensor]:
        """Return log-probs of the C tokens and of the rest, of both."""
        assert temperature == 1.0, temperature
        token_kC = self.token_KC[chunk]
        student_kX = top_and_rest_KR(logits_kV.log_softmax(-1), token_kC)
        return student_kX, add_rest_KR(self.logp_KC[chunk], token_kC)

    def target_logp(self, target_K: Tensor, temperature: float) -> Tensor:
        """Return the teacher's log-probs of the targets."""
        assert temperature == 1.0, temperature
        assert torch.equal(self.token_KC[:, 0], target_K)
        return self.logp_KC[:, 0]


def divergence_K(
    student: Predictions,
    teacher: Scores,
    target_K: Tensor,
    divergence: Divergence | SampledReverseKL,
    temperature: float = 1.0,
) -> Tensor:
    """Return the divergence at each token; logits of all tokens never exist at once.

    They are made for a chunk of the tokens at a time, and made again in the backward pass, of
    student and teacher both. (A policy without packed tokens has made all of its own before.)
    """
    if isinstance(divergence, SampledReverseKL):
        value_K = divergence(
            student.logp(target_K, temperature), teacher.target_logp(target_K, temperature)
        )
        return _where_known(value_K, teacher)

    def of_chunk(chunk: slice) -> Tensor:
        return divergence(*teacher.distributions(student.logits(chunk), chunk, temperature))

    device = student.states_KD.device
    chunks = [
        checkpoint(of_chunk, chunk, use_reentrant=False, preserve_rng_state=False)
        for chunk in token_chunks(len(student), student.vocabulary, device, COPIES)
    ]
    # without a target there is no chunk, but there shall be a gradient (of 0) all the same
    return _where_known(torch.cat(chunks), teacher) if chunks else student.states_KD.float().sum(-1)


def _where_known(value_K: Tensor, teacher: Scores) -> Tensor:
    return value_K if teacher.known_K is None else value_K.where(teacher.known_K, 0.0)
