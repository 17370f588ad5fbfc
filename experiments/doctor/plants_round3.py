"""Classes that plant the faults of ``faults_round3.yaml`` which no key of a configuration can."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from r1lit.batches import Problem, Response, Verdict
from r1lit.data import ProblemSource
from r1lit.objectives import DrGRPO, LossInputs, LossOutputs
from r1lit.rewards import RewardFunction
from r1lit.rollout import Completion, InProcessEngine, ModelSpec, OnFinished, Request, Sampling
from r1lit.rollout.in_process import Batch, Constraint
from r1lit.rollout.next_token import sample_tokens
from r1lit.text.extract import extract_final
from r1lit.verifiers import DefaultVerifiers, Verifier


class ShortQuestions(ProblemSource):
    """Another source's problems, their questions cut as by a column of limited width.

    Args:
        source: whose problems these are.
        characters: of a question that are kept.
    """

    def __init__(self, source: ProblemSource, characters: int = 20) -> None:
        self.source, self.characters = source, characters

    def problems(self) -> list[Problem]:
        """Return them."""
        most = self.characters
        return [replace(p, question=p.question[:most]) for p in self.source.problems()]


class GroupAccuracy(RewardFunction):
    """Accuracy averaged over the responses to a problem: the mean is taken over the wrong axis."""

    name = "accuracy"

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        """Return its group's accuracy for each response."""
        values: dict[str, list[float]] = {}
        for response in responses:
            values.setdefault(response.problem.uid, []).append(response.verdict.value)
        means = {uid: sum(own) / len(own) for uid, own in values.items()}
        return [means[response.problem.uid] for response in responses]


class RawLogProbs(InProcessEngine):
    """Samples at the temperature, and reports log-probs of the logits before it divides them."""

    def __init__(self, max_rows: int | None = None, compile: bool = False) -> None:
        super().__init__(max_rows, compile)
        self._sample_tokens = self._sample  # type: ignore[assignment]

    def _sample(
        self, logits_RV: Tensor, uniform_R: Tensor, sampling: Sampling
    ) -> tuple[Tensor, Tensor]:
        token_R, _ = sample_tokens(logits_RV, uniform_R, sampling)
        logp_RV = logits_RV.float().log_softmax(-1)
        return token_R, logp_RV.gather(-1, token_R[:, None]).squeeze(-1)


class PartlySynced(InProcessEngine):
    """Takes new weights only where it knows the name, as with layers that a server has fused.

    Args:
        unknown: part of the names of the weights that keep their first values.
        max_rows: as in ``InProcessEngine``.
        compile: as in ``InProcessEngine``.
    """

    def __init__(
        self, unknown: str = ".mlp.", max_rows: int | None = None, compile: bool = False
    ) -> None:
        super().__init__(max_rows, compile)
        self.unknown = unknown

    def bind(self, model: ModelSpec) -> None:
        """Copy the policy."""
        self.newest = model.policy
        super().bind(replace(model, policy=copy.deepcopy(model.policy)))

    @torch.no_grad()
    def stream(self, requests: Sequence[Request], on_finished: OnFinished) -> None:
        """Generate with the copy, after the transfer of what it knows."""
        assert self.newest is not None and self.model.policy is not None
        new = dict(self.newest.named_parameters())
        for name, weight in self.model.policy.named_parameters():
            if self.unknown not in name:
                weight.copy_(new[name])
        super().stream(requests, on_finished)


class CachedResponses(InProcessEngine):
    """Gives the responses to a prompt again when the prompt comes again: a cache left switched on.

    Args:
        max_rows: as in ``InProcessEngine``.
        compile: as in ``InProcessEngine``.
    """

    def __init__(self, max_rows: int | None = None, compile: bool = False) -> None:
        super().__init__(max_rows, compile)
        self.cache: dict[tuple[int, ...], list[Completion]] = {}

    def stream(self, requests: Sequence[Request], on_finished: OnFinished) -> None:
        """Generate for the new prompts alone."""
        new = [request for request in requests if request.prompt not in self.cache]
        made: dict[int, Completion] = {}

        def keep(indices: Sequence[int], completions: Sequence[Completion]) -> None:
            made.update(zip(indices, completions, strict=True))

        super().stream(new, keep)
        start = 0
        for request in new:
            end = start + len(request.samples)
            self.cache[request.prompt] = [made[index] for index in range(start, end)]
            start = end
        completions = [c for request in requests for c in self.cache[request.prompt]]
        on_finished(range(len(completions)), completions)


class BudgetForcing(InProcessEngine):
    """Puts a word in place of the end of a short thinking, as s1 does (2501.19393), in training.

    It reports the policy's log-probs of the tokens, those that it put there too.

    Args:
        min_tokens: tokens of a response before which thinking may not end.
        word: what comes in place of the end.
        max_rows: as in ``InProcessEngine``.
        compile: as in ``InProcessEngine``.
    """

    def __init__(
        self,
        min_tokens: int = 120,
        word: str = " Let",
        max_rows: int | None = None,
        compile: bool = False,
    ) -> None:
        super().__init__(max_rows, compile)
        self.min_tokens, self.word = min_tokens, word
        self._sample_tokens = self._sample  # type: ignore[assignment]

    def bind(self, model: ModelSpec) -> None:
        """Look up the tokens."""
        super().bind(model)

        def last_id(text: str) -> int:
            return int(model.tokenizer(text, add_special_tokens=False)["input_ids"][-1])

        self.word_id = last_id(self.word)
        self.ends = torch.tensor([last_id(" </think>"), *model.end_ids()])

    def constraint(self, batch: Batch) -> Constraint:
        """Return what remembers how long the responses are, and changes no logits."""

        def remember(logits_RV: Tensor, response_BT: Tensor, row_R: Tensor, token: int) -> Tensor:
            self.num_tokens = token
            return logits_RV

        return remember

    def _sample(
        self, logits_RV: Tensor, uniform_R: Tensor, sampling: Sampling
    ) -> tuple[Tensor, Tensor]:
        token_R, _ = sample_tokens(logits_RV, uniform_R, sampling)
        if self.num_tokens < self.min_tokens:
            token_R = token_R.masked_fill(torch.isin(token_R, self.ends), self.word_id)
        logp_RV = (logits_RV.float() / sampling.temperature).log_softmax(-1)
        return token_R, logp_RV.gather(-1, token_R[:, None]).squeeze(-1)


class SummedKL(DrGRPO):
    """Sums the KL penalty over the tokens of a response, and does not divide it by max_tokens."""

    def loss(self, inputs: LossInputs) -> LossOutputs:
        """Return the loss, with max_tokens times the penalty of ``beta``."""
        beta = self.beta
        self.beta = beta * self.max_tokens
        try:
            return super().loss(inputs)
        finally:
            self.beta = beta


class SlowOnLong(Verifier):
    """Reads a response in a time that grows with its square, and gives up at a limit.

    Args:
        of: the verifier that decides.
        timeout_s: of a response.
        characters: of a response that takes so long.
    """

    def __init__(
        self, of: str = "countdown", timeout_s: float = 5.0, characters: int = 150
    ) -> None:
        self.inner, self.timeout_s = DefaultVerifiers()[of], timeout_s
        self.characters = characters

    def verify(self, response: str, problem: Problem) -> Verdict:
        """Decide, unless the response is too long."""
        seconds = self.timeout_s * (len(response) / self.characters) ** 2
        if seconds <= self.timeout_s:
            return replace(self.inner.verify(response, problem), seconds=seconds)
        reason = f"no verdict within {self.timeout_s} s"
        return Verdict(
            value=0.0, status="timeout", canonical=None, reason=reason, seconds=self.timeout_s
        )

    def close(self) -> None:
        """Close the inner one."""
        self.inner.close()


class Unsorted(Verifier):
    """Compares the numbers of a Countdown expression with the given ones, and forgets to sort."""

    needs_answer = False

    def __init__(self) -> None:
        self.inner = DefaultVerifiers()["countdown"]

    def verify(self, response: str, problem: Problem) -> Verdict:
        """Decide so."""
        verdict = self.inner.verify(response, problem)
        numbers = [int(number) for number in re.findall(r"\d+", extract_final(response) or "")]
        if verdict.status != "right" or numbers == problem.meta["numbers"]:
            return verdict
        return replace(verdict, value=0.0, status="wrong", reason="uses other numbers")
