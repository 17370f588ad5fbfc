"""States before a head and what is computed of them.

K predicted tokens   V vocabulary   D hidden size
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from r1lit.batches import Candidates
from r1lit.policy.attention import autocast_dtype
from r1lit.policy.linear_logp import linear_logp


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
    """Hidden states and head, or logits, from which K tokens are predicted in a forward pass.

    ``states_KD`` are the last hidden states, and ``weight_VD`` makes logits of them; where the
    policy cannot be taken apart so, ``weight_VD`` is None and the states are logits (D = V).
    ``candidates`` are all that a target could have been, where top-k or top-p left tokens out.
    """

    states_KD: Tensor
    weight_VD: Tensor | None
    candidates: Candidates | None = None

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
