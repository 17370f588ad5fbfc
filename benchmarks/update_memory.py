"""Peak memory of an update: rollouts are random tokens on both sides, so that nothing is decoded.

Each side has its own process. The first iteration is short; in the second, AdamW's state is there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import AutoConfig, PreTrainedTokenizerBase

from benchmarks import ours
from benchmarks.hf_generate import warmup_lengths
from benchmarks.work import Work
from benchmarks.worker import Gate
from r1lit.batches import Generation
from r1lit.policy import Policy
from r1lit.rollout import OnEnd, RolloutEngine, Sampling

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
        self,
        policy: Policy,
        tokenizer: PreTrainedTokenizerBase,
        prompts: Sequence[Sequence[int]],
        *,
        group_size: int,
        sampling: Sampling,
        seed: int,
        iteration: int,
        samples: Sequence[int],
        on_end: OnEnd | None = None,
    ) -> Generation:
        """Draw responses; see ``RolloutEngine.generate``."""
        recorded = self.lengths if iteration else warmup_lengths(self.lengths)
        length_B1 = torch.tensor([recorded[sample] for sample in samples])[:, None]
        tokens_BT = random_tokens(len(samples), int(length_B1.max()), self.vocabulary, iteration)
        mask_BT = torch.arange(tokens_BT.shape[1]) < length_B1
        logp_BT = torch.zeros(tokens_BT.shape).masked_fill(mask_BT, -math.log(self.vocabulary))
        return Generation(
            response_BT=tokens_BT.masked_fill(~mask_BT, int(tokenizer.pad_token_id)),
            mask_BT=mask_BT,
            logp_BT=logp_BT,
            finished_B=torch.ones(len(samples), dtype=torch.bool),
        )


def random_tokens(rows: int, width: int, vocabulary: int, seed: int) -> torch.Tensor:
    """Return token ids without the special ones in front."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, vocabulary - 1, (rows, width), generator=generator)


def vocabulary_of(work: Work) -> int:
    """Return the number of logits of the work's model."""
    return int(AutoConfig.from_pretrained(work.model).vocab_size)


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
