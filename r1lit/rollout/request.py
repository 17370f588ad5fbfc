"""A request to an engine, and what comes of it.

T response tokens
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from r1lit.batches import Candidates
from r1lit.problems import Problem, Transcript, Verdict
from r1lit.rollout.sampling import Sampling

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request for one completion of ``prompt`` (token ids) for each of ``samples``.

    A completion is a function of its prompt and of (seed, iteration, sample), as far as the engine
    can promise; ``samples`` are the names under which an iteration samples, in any order.
    ``problem`` is what the prompt asks; an engine does not read it. ``with_candidates`` asks for
    ``Completion.candidates``.
    """

    prompt: tuple[int, ...]
    samples: tuple[int, ...]
    sampling: Sampling
    seed: int
    iteration: int = 0
    problem: Problem | None = None
    with_candidates: bool = False


@dataclass(frozen=True, kw_only=True)
class Completion:
    """One sample of a request: token ids, log-probs as sampled, finish reason.

    ``token_ids`` (T, long) and ``logps`` (T, float32) hold the response with its end token and
    without padding; they may be views, on any device. ``logps`` are log-probabilities of the
    sampled tokens, log softmax(logits / temperature). ``finish_reason`` is "length" where
    ``max_tokens`` cut the response. ``version`` is that of the weights, where the engine knows it;
    if they changed in the middle of the response, ``version_T`` (int32) has that of each token, and
    ``version`` the first one's. An engine that returns no tokens gives ``text`` and ``num_tokens``
    instead. Of an episode of several turns ``environment_T`` (bool) is true at the tokens that were
    not sampled; their log-probs are 0 and their version is -1. ``verdict`` is one that a checkpoint
    has kept. ``candidates`` are those of each token, where the request asked for them; ``logps``
    are then among them.
    """

    token_ids: Tensor | None = None
    logps: Tensor | None = None
    finish_reason: FinishReason
    version: int | None = None
    version_T: Tensor | None = None
    text: str | None = None
    environment_T: Tensor | None = None
    transcript: Transcript | None = None
    verdict: Verdict | None = None
    candidates: Candidates | None = None
    num_tokens: int = 0
    """Response tokens, the end token included; counted from ``token_ids`` where there are any."""

    def __post_init__(self) -> None:
        assert self.token_ids is not None or self.text is not None, "a completion of nothing"
        if self.token_ids is not None:
            object.__setattr__(self, "num_tokens", len(self.token_ids))
            assert self.logps is None or self.logps.shape == self.token_ids.shape
            assert self.candidates is None or len(self.candidates.num_K) == self.num_tokens
            for values_T in (self.version_T, self.environment_T):
                assert values_T is None or values_T.shape == self.token_ids.shape

    @property
    def finished(self) -> bool:
        """True where the response ended by itself."""
        return self.finish_reason == "stop"

    @property
    def num_environment_tokens(self) -> int:
        """Number of tokens that were not sampled."""
        return 0 if self.environment_T is None else int(self.environment_T.sum())

    def versions_T(self) -> Tensor:
        """Return the version of the weights behind each token (T, int32); -1 if it is not known."""
        if self.version_T is not None:
            return self.version_T
        version = -1 if self.version is None else self.version
        return torch.full((self.num_tokens,), version, dtype=torch.int32)


OnFinished = Callable[[Sequence[int], Sequence[Completion]], None]
"""Takes indices of completions, counted over all samples of all requests, and the completions."""


def texts_of(completions: Sequence[Completion], tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Return the texts of completions that verifiers read, without special tokens."""
    texts = []
    for completion in completions:
        text: Any = completion.text
        if completion.transcript is not None:
            text = completion.transcript.text
        if text is None:
            assert completion.token_ids is not None
            text = tokenizer.decode(completion.token_ids.tolist(), skip_special_tokens=True)
        texts.append(text)
    return texts
