"""What a policy's forward pass computes at predicted tokens, and a teacher's outputs there.

K predicted tokens   k some of them   D hidden size   V vocabulary
C tokens that a server returns   X outcomes, V or C + 1
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from r1lit.objectives import Divergence, SampledReverseKL
from r1lit.objectives.distillation import add_rest_KR, top_and_rest_KR
from r1lit.objectives.terms import entropy_BT
from r1lit.policy.attention import autocast_dtype
from r1lit.policy.linear_head import linear_cross_entropy, linear_logp, token_chunks

COPIES = 4  # tensors as large as a chunk's logits that a divergence holds at once


class PolicyOutput(NamedTuple):
    """Results of a forward pass, float32; what was not requested is None.

    A tuple, since hooks of PyTorch's look for tensors in those.

    ``logp_K`` and ``entropy_K`` are those of softmax(logits / temperature); entropies carry no
    gradient unless ``LogProbs`` says so.
    ``cross_entropy`` is summed over the targets. ``states_KD`` may be given back to the same policy
    as ``HiddenStates``.
    """

    logp_K: Tensor | None = None
    entropy_K: Tensor | None = None
    cross_entropy: Tensor | None = None
    divergence_K: Tensor | None = None
    states_KD: Tensor | None = None
    logits_KV: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """What K tokens are predicted from, within a forward pass: hidden states and head, or logits.

    ``states_KD`` are the last hidden states, and ``weight_VD`` makes logits of them; where the
    policy cannot be taken apart so, ``weight_VD`` is None and the states are logits (D = V).
    """

    states_KD: Tensor
    weight_VD: Tensor | None

    def __len__(self) -> int:
        return len(self.states_KD)

    @property
    def vocabulary(self) -> int:
        """V, the number of logits."""
        return self.states_KD.shape[1] if self.weight_VD is None else len(self.weight_VD)

    def logits(self, chunk: slice) -> Tensor:
        """Return the logits of some of the tokens, float32."""
        if self.weight_VD is None:
            return self.states_KD[chunk].float()
        dtype = autocast_dtype(self.states_KD.device, self.states_KD.dtype)
        return (self.states_KD[chunk].to(dtype) @ self.weight_VD.to(dtype).T).float()

    def logp(self, target_K: Tensor, temperature: float = 1.0) -> Tensor:
        """Return the log-probs of the targets, softmax(logits / temperature), float32."""
        if self.weight_VD is not None:
            return linear_logp(self.states_KD, self.weight_VD, target_K, temperature)[0]
        logits_KV = self.states_KD.float()
        if temperature not in (0.0, 1.0):
            logits_KV = logits_KV / temperature
        return -torch.nn.functional.cross_entropy(logits_KV, target_K, reduction="none")


class Compute(ABC):
    """What a forward pass computes."""

    @abstractmethod
    def __call__(self, predictions: Predictions, target_K: Tensor) -> PolicyOutput:
        """Compute it, within the forward pass."""


@dataclass(frozen=True, kw_only=True)
class LogProbs(Compute):
    """``logp_K`` and ``entropy_K``; a temperature of 0 (greedy sampling) counts as 1.

    ``entropy_gradient``: whether the entropies carry one.
    """

    temperature: float = 1.0
    entropy_gradient: bool = False

    def __call__(self, predictions: Predictions, target_K: Tensor) -> PolicyOutput:
        """Compute both from the same softmax."""
        states_KD, weight_VD = predictions.states_KD, predictions.weight_VD
        if weight_VD is not None:
            logp_K, entropy_K = linear_logp(
                states_KD, weight_VD, target_K, self.temperature, self.entropy_gradient
            )
            return PolicyOutput(logp_K=logp_K, entropy_K=entropy_K)
        logits_KV = states_KD.float() / (self.temperature or 1.0)
        logp_K = logits_KV.log_softmax(-1).gather(-1, target_K[:, None]).squeeze(-1)
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.entropy_gradient):
            return PolicyOutput(logp_K=logp_K, entropy_K=entropy_BT(logits_KV))


class CrossEntropy(Compute):
    """``cross_entropy``, summed over the targets; takes less time than ``LogProbs``."""

    def __call__(self, predictions: Predictions, target_K: Tensor) -> PolicyOutput:
        """Compute it."""
        if predictions.weight_VD is None:
            return PolicyOutput(cross_entropy=-predictions.logp(target_K).sum())
        loss = linear_cross_entropy(predictions.states_KD, predictions.weight_VD, target_K)
        return PolicyOutput(cross_entropy=loss)


class States(Compute):
    """``states_KD``, from which the same policy makes logits later, some at a time."""

    def __call__(self, predictions: Predictions, target_K: Tensor) -> PolicyOutput:
        """Return them as they are."""
        return PolicyOutput(states_KD=predictions.states_KD)


class Logits(Compute):
    """``logits_KV``."""

    def __call__(self, predictions: Predictions, target_K: Tensor) -> PolicyOutput:
        """Compute them of all tokens at once."""
        return PolicyOutput(logits_KV=predictions.logits(slice(None)))


@dataclass(frozen=True, kw_only=True)
class Divergences(Compute):
    """``divergence_K`` from a teacher; with ``with_logp`` also ``logp_K`` at temperature 1."""

    teacher: Scores
    divergence: Divergence | SampledReverseKL
    temperature: float = 1.0
    with_logp: bool = False

    def __call__(self, predictions: Predictions, target_K: Tensor) -> PolicyOutput:
        """Compute them."""
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
