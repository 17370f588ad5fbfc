"""Peak memory of an update: rollouts are random tokens on both sides, so that nothing is decoded.

Each side has its own process. The first iteration is short; in the second, AdamW's state is there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import AutoConfig

from benchmarks import ours
from benchmarks.hf_generate import warmup_lengths
from benchmarks.work import Work
from benchmarks.worker import Gate
from r1lit.rollout import Completion, OnFinished, Request, RolloutEngine

BYTES_PER_PARAMETER = 16  # weight, gradient and two moments, each in float32


def static_mb(num_parameters: int) -> float:
    """Return what a model needs before any token: weights, gradients and AdamW's state, in MB."""
    return BYTES_PER_PARAMETER * num_parameters / 2**20


class RandomTokens(RolloutEngine):
    """Draws every token evenly from the vocabulary: what a policy of random weights does."""

    def __init__(self, lengths: Sequence[int], vocabulary: int) -> None:
        self.lengths = lengths
        self.vocabulary = vocabulary

    def generate(
        self, requests: Sequence[Request], on_finished: OnFinished | None = None
    ) -> list[Completion]:
        """Return the completions; see ``RolloutEngine.generate``."""
        iteration = requests[0].iteration
        recorded = self.lengths if iteration else warmup_lengths(self.lengths)
        lengths = [recorded[sample] for request in requests for sample in request.samples]
        tokens_BT = random_tokens(len(lengths), max(lengths), self.vocabulary, iteration)
        return [
            Completion(
                token_ids=tokens_T[:length],
                logps=torch.full((length,), -math.log(self.vocabulary)),
                finish_reason="stop",
            )
            for tokens_T, length in zip(tokens_BT, lengths, strict=True)
        ]


def random_tokens(rows: int, width: int, vocabulary: int, seed: int) -> torch.Tensor:
    """Return token ids without the special ones in front."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, vocabulary - 1, (rows, width), generator=generator)


def vocabulary_of(work: Work) -> int:
    """Return the number of logits of the work's model."""
    return int(AutoConfig.from_pretrained(work.model, trust_remote_code=False).vocab_size)


def run_ours(gate: Gate, *, work: Work, **settings: Any) -> None:
    """Update on random tokens with r1lit."""
    engine = RandomTokens(work.forced, vocabulary_of(work))
    ours.run_iterations(gate, work=work, engine=engine, **settings)


def run_trl(gate: Gate, *, work: Work, **settings: Any) -> None:
    """Update on random tokens with TRL."""
    from benchmarks import trl_grpo

    vocabulary = vocabulary_of(work)

    def rollout(lengths: trl_grpo.Lengths, parts: dict[str, float]) -> Callable[..., Any]:
        def draw(prompts: list[str], trainer: Any) -> dict[str, Any]:
            assert lengths.now is not None
            parts["rollout_s"] = 0.0
            tokens = random_tokens(len(prompts), max(lengths.now), vocabulary, seed=0)
            rows = zip(tokens.tolist(), lengths.now, strict=True)
            return {
                "prompt_ids": trainer.processing_class(prompts)["input_ids"],
                "completion_ids": [row[:length] for row, length in rows],
                "logprobs": None,
            }

        return draw

    trl_grpo.run_iterations(gate, work=work, rollout=rollout, **settings)
