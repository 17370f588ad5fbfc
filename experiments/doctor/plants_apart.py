"""Classes that plant the faults of ``faults_apart.yaml`` which no key of a configuration can."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from r1lit.batches import Problem, Verdict
from r1lit.objectives import EntropyBonus, LossInputs
from r1lit.policy import Policy
from r1lit.rollout import InProcessEngine, ModelSpec, OnFinished, Request, Sampling
from r1lit.rollout.in_process import Batch, Constraint, StoppingCriterion
from r1lit.rollout.next_token import sample_tokens
from r1lit.verifiers import DefaultVerifiers, Verifier


class SameRandomNumbers(InProcessEngine):
    """Gives all responses of a group the random numbers of the first: one seed a request."""

    def stream(self, requests: Sequence[Request], on_finished: OnFinished) -> None:
        """Sample so."""
        alike = [replace(r, samples=r.samples[:1] * len(r.samples)) for r in requests]
        super().stream(alike, on_finished)


class IgnoresEnd(InProcessEngine):
    """Stops at no end token, as with the EOS of another tokenizer in the generation config."""

    def stopping_criterion(self, sampling: Sampling, samples: Sequence[int]) -> StoppingCriterion:
        """Return one that ends no row."""

        def ended(token_R: Tensor, response_BT: Tensor, rows: Tensor, token: int) -> Tensor:
            return torch.zeros_like(token_R, dtype=torch.bool)

        return ended


class FewBits(InProcessEngine):
    """Generates with weights rounded to a few bits, as a quantised server does.

    Args:
        bits: of a weight; each row of a matrix has its own scale.
        max_rows: as in ``InProcessEngine``.
        compile: as in ``InProcessEngine``.
    """

    def __init__(self, bits: int = 4, max_rows: int | None = None, compile: bool = False) -> None:
        super().__init__(max_rows, compile)
        self.bits = bits

    def stream(self, requests: Sequence[Request], on_finished: OnFinished) -> None:
        """Generate with a rounded copy of the present weights."""
        whole = self.model
        assert whole.policy is not None
        self.model = replace(whole, policy=self.rounded(copy.deepcopy(whole.policy)))
        try:
            super().stream(requests, on_finished)
        finally:
            self.model = whole

    @torch.no_grad()
    def rounded(self, policy: Policy) -> Policy:
        """Return the policy with its matrices rounded."""
        levels = 2 ** (self.bits - 1) - 1
        for weight in policy.parameters():
            if weight.ndim == 2:
                scale = weight.abs().amax(-1, keepdim=True).clamp(min=1e-12) / levels
                weight.copy_((weight / scale).round() * scale)
        return policy


class Lagging(InProcessEngine):
    """Takes the new weights in one rollout of a few.

    Args:
        every: rollouts from one transfer of the weights to the next.
        max_rows: as in ``InProcessEngine``.
        compile: as in ``InProcessEngine``.
    """

    def __init__(self, every: int = 4, max_rows: int | None = None, compile: bool = False) -> None:
        super().__init__(max_rows, compile)
        self.every, self.num_rollouts = every, 0

    def bind(self, model: ModelSpec) -> None:
        """Remember the model; its weights are copied by ``stream``."""
        super().bind(model)
        self.newest = model

    def stream(self, requests: Sequence[Request], on_finished: OnFinished) -> None:
        """Generate with the weights of the last transfer."""
        if self.num_rollouts % self.every == 0:
            self.model = replace(self.newest, policy=copy.deepcopy(self.newest.policy))
        self.num_rollouts += 1
        super().stream(requests, on_finished)


class RepetitionPenalty(InProcessEngine):
    """Samples with a repetition penalty, and reports the log-probs of the model without it.

    As in Hugging Face's ``generate``, a penalty above 1 makes a token of the response so far less
    likely. One below 1, which reads like a discount, makes it more likely.

    Args:
        penalty: divides positive logits of such tokens, and multiplies negative ones.
        max_rows: as in ``InProcessEngine``.
        compile: as in ``InProcessEngine``.
    """

    def __init__(
        self, penalty: float = 0.8, max_rows: int | None = None, compile: bool = False
    ) -> None:
        super().__init__(max_rows, compile)
        self.penalty = penalty
        self._sample_tokens = self._sample  # type: ignore[assignment]

    def constraint(self, batch: Batch) -> Constraint:
        """Return what remembers the responses so far, and changes no logits."""

        def remember(logits_RV: Tensor, response_BT: Tensor, row_R: Tensor, token: int) -> Tensor:
            self.response_RT = response_BT[row_R, :token]
            return logits_RV

        return remember

    def _sample(
        self, logits_RV: Tensor, uniform_R: Tensor, sampling: Sampling
    ) -> tuple[Tensor, Tensor]:
        logits_RV = logits_RV.float()
        seen_RT = logits_RV.gather(-1, self.response_RT)
        seen_RT = torch.where(seen_RT > 0, seen_RT / self.penalty, seen_RT * self.penalty)
        changed_RV = logits_RV.scatter(-1, self.response_RT, seen_RT)
        token_R, _ = sample_tokens(changed_RV, uniform_R, sampling)
        logp_RV = (logits_RV / sampling.temperature).log_softmax(-1)
        return token_R, logp_RV.gather(-1, token_R[:, None]).squeeze(-1)


class FullQueue(Verifier):
    """Decides about the first responses of a batch in time; the rest time out in the queue.

    Args:
        of: the verifier that decides.
        most: responses of a batch that it decides about.
    """

    def __init__(self, of: str = "countdown", most: int = 32) -> None:
        self.inner, self.most = DefaultVerifiers()[of], most

    def verify(self, response: str, problem: Problem) -> Verdict:
        """Decide about one response."""
        return self.inner.verify(response, problem)

    def verify_batch(self, responses: Sequence[str], problems: Sequence[Problem]) -> list[Verdict]:
        """Decide about the first ones."""
        most = self.most
        in_time = self.inner.verify_batch(responses[:most], problems[:most])
        late = Verdict(value=0.0, status="timeout", canonical=None, reason="no answer in time")
        return [*in_time, *[late] * (len(responses) - len(in_time))]

    def close(self) -> None:
        """Close the inner one."""
        self.inner.close()


class ReadsBeginning(Verifier):
    """Reads the first characters of a response only, as a column of limited width keeps them.

    Args:
        of: the verifier that decides.
        characters: of a response that it sees.
    """

    def __init__(self, of: str = "countdown", characters: int = 160) -> None:
        self.inner, self.characters = DefaultVerifiers()[of], characters

    def verify(self, response: str, problem: Problem) -> Verdict:
        """Decide about the beginning."""
        return self.inner.verify(response[: self.characters], problem)

    def close(self) -> None:
        """Close the inner one."""
        self.inner.close()


class EntropyPenalty(EntropyBonus):
    """The entropy bonus with the wrong sign: it lowers the entropy."""

    def loss(self, inputs: LossInputs, token_BT: Tensor, num_tokens: float) -> Tensor:
        """Return the negative of what is right."""
        return -super().loss(inputs, token_BT, num_tokens)
