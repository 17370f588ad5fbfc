"""What a teacher says of K tokens, and how far a student is from it there.

K tokens   k some of them   V vocabulary   C tokens that a server tells   X outcomes, V or C + 1
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from r1lit.objectives import Divergence, SampledReverseKL
from r1lit.objectives.top_k import add_rest_KR, top_and_rest_KR
from r1lit.policy.at_once import token_parts
from r1lit.policy.logprobs import Predictions

COPIES = 4  # tensors as large as a part's logits that a divergence holds at once


class Scores(ABC):
    """A teacher's next-token distributions at K tokens; constants."""

    known_K: Tensor | None = None
    """Where there are any; elsewhere the divergence is 0. None: at all tokens."""

    @abstractmethod
    def distributions(
        self, logits_kV: Tensor, part: slice, temperature: float
    ) -> tuple[Tensor, Tensor]:
        """Return log-probs of student (from its logits) and teacher over the same X outcomes."""

    @abstractmethod
    def target_logp(self, target_K: Tensor, temperature: float) -> Tensor:
        """Return the teacher's log-probs of the targets."""


@dataclass(frozen=True, kw_only=True)
class FullScores(Scores):
    """Scores of a teacher in this process: X = V.

    Heads of one tokenizer may differ in width (Qwen2.5 pads its to 151,936 or to 152,064). Logits
    beyond the narrower one belong to no token, and are left out.
    """

    said: Predictions

    def distributions(
        self, logits_kV: Tensor, part: slice, temperature: float
    ) -> tuple[Tensor, Tensor]:
        """Return log softmax(logits / temperature) of both."""
        with torch.no_grad():
            teacher_kV = self.said.logits(part)
        width = min(logits_kV.shape[-1], teacher_kV.shape[-1])
        student_kV, teacher_kV = logits_kV[:, :width], teacher_kV[:, :width]
        return (
            (student_kV / temperature).log_softmax(-1),
            (teacher_kV / temperature).log_softmax(-1),
        )

    @torch.no_grad()
    def target_logp(self, target_K: Tensor, temperature: float) -> Tensor:
        """Return the teacher's log-probs of the targets."""
        return self.said.logp(target_K, temperature)


@dataclass(frozen=True, kw_only=True)
class TopScores(Scores):
    """Scores of a server: log-probs of C tokens each, at temperature 1; X = C + 1.

    ``token_KC`` begins with the target; what repeats it fills up the row.
    """

    token_KC: Tensor
    logp_KC: Tensor
    known_K: Tensor | None = None

    def distributions(
        self, logits_kV: Tensor, part: slice, temperature: float
    ) -> tuple[Tensor, Tensor]:
        """Return log-probs of the C tokens and of the rest, of both."""
        assert temperature == 1.0, temperature
        token_kC = self.token_KC[part]
        student_kX = top_and_rest_KR(logits_kV.log_softmax(-1), token_kC)
        return student_kX, add_rest_KR(self.logp_KC[part], token_kC)

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

    They are made for a part of the tokens at a time, and made again in the backward pass, of
    student and teacher both. (A policy without packed tokens has made all of its own before.)
    """
    if isinstance(divergence, SampledReverseKL):
        value_K = divergence(
            student.logp(target_K, temperature), teacher.target_logp(target_K, temperature)
        )
        return _where_known(value_K, teacher)

    def of_part(part: slice) -> Tensor:
        return divergence(*teacher.distributions(student.logits(part), part, temperature))

    device = student.states_KD.device
    parts = [
        checkpoint(of_part, part, use_reentrant=False, preserve_rng_state=False)
        for part in token_parts(len(student), student.vocabulary, device, COPIES)
    ]
    # without a target there is no part, but there shall be a gradient (of 0) all the same
    return _where_known(torch.cat(parts), teacher) if parts else student.states_KD.float().sum(-1)


def _where_known(value_K: Tensor, teacher: Scores) -> Tensor:
    return value_K if teacher.known_K is None else value_K.where(teacher.known_K, 0.0)
