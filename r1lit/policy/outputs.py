"""Outputs of a policy's forward pass at predicted tokens, without the logits of all tokens.

K predicted tokens   V vocabulary   D hidden size
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from r1lit.objectives.terms import entropy_BT
from r1lit.policy.candidate_logp import among_candidates
from r1lit.policy.linear_logp import linear_logp
from r1lit.policy.predictions import PolicyOutput, Predictions


class Compute(ABC):
    """Something that a forward pass computes."""

    @abstractmethod
    def __call__(self, predictions: Predictions, target_K: Tensor) -> PolicyOutput:
        """Compute the output, within the forward pass."""


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
        if predictions.candidates is not None:
            among = predictions, predictions.candidates, target_K
            return among_candidates(*among, self.temperature or 1.0, self.entropy_gradient)
        if weight_VD is not None:
            logp_K, entropy_K = linear_logp(
                states_KD, weight_VD, target_K, self.temperature, self.entropy_gradient
            )
            return PolicyOutput(logp_K=logp_K, entropy_K=entropy_K)
        logits_KV = states_KD.float() / (self.temperature or 1.0)
        logp_K = logits_KV.log_softmax(-1).gather(-1, target_K[:, None]).squeeze(-1)
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.entropy_gradient):
            return PolicyOutput(logp_K=logp_K, entropy_K=entropy_BT(logits_KV))


class States(Compute):
    """``states_KD``, from which the same policy makes logits later, some at a time."""

    def __call__(self, predictions: Predictions, target_K: Tensor) -> PolicyOutput:
        """Return the states as they are."""
        return PolicyOutput(states_KD=predictions.states_KD)


class Logits(Compute):
    """``logits_KV``."""

    def __call__(self, predictions: Predictions, target_K: Tensor) -> PolicyOutput:
        """Return the logits of all tokens at once."""
        return PolicyOutput(logits_KV=predictions.logits(slice(None)))
