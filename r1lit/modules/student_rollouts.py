"""Responses for on-policy distillation: drawn by the student, or stored with the problem.

P prompts   B rows   T response tokens
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from r1lit.batches import Problem, PromptBatch, Rollout
from r1lit.modules.rollout_worker import RolloutWorker, Timings
from r1lit.rollout import Completion
from r1lit.rollout.groups import join_rollouts
from r1lit.seeding import generator


def roll_out_share(
    worker: RolloutWorker,
    batch: PromptBatch,
    timings: Timings,
    share: float,
    key: str,
) -> tuple[Rollout, Tensor]:
    """Generate responses to a share of the prompts, and take those stored with the others.

    Which prompt is of which kind depends on (seed, iteration, its place in the iteration) alone.

    Returns:
        The rollout, drawn responses first, and which of its rows were drawn (B).
    """
    drawn = [
        p
        for p in range(batch.num_prompts)
        if generator(worker.seed, "on-policy", batch.iteration, batch.positions[p]).random() < share
    ]
    stored = [p for p in range(batch.num_prompts) if p not in set(drawn)]
    rollouts = []
    if drawn:
        rollouts.append(worker.collect(batch, drawn, timings))
    if stored:
        completions = [
            Completion(
                token_ids=torch.tensor(stored_tokens(worker.tokenizer, batch.problems[p], key)),
                finish_reason="stop",
            )
            for p in stored
        ]
        rollouts.append(worker.grade(completions, batch, stored, timings))
    rollout = join_rollouts(rollouts)
    drawn_B = torch.arange(len(rollout.responses), device=rollout.response_BT.device)
    return rollout, drawn_B < len(drawn) * batch.group_size


def stored_tokens(tokenizer: PreTrainedTokenizerBase, problem: Problem, key: str) -> list[int]:
    """Return the tokens of the response stored with a problem, tokenised as a document's."""
    text = problem.meta.get(key)
    if not isinstance(text, str) or not text:
        raise ValueError(
            f"stored_response: problem {problem.uid!r} holds no text under {key!r} in its meta, and"
            " on_policy below 1 learns from it; name the column of responses in the source's meta"
        )
    tokens = list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
    eos = int(tokenizer.eos_token_id)
    return tokens if tokens and tokens[-1] == eos else [*tokens, eos]


def check_stored(
    tokenizer: PreTrainedTokenizerBase, problems: Sequence[Problem], key: str, max_tokens: int
) -> None:
    """Check that every problem has a stored response, not longer than one that is drawn.

    Raises:
        ValueError: naming the first problem that has none, or how many are too long.
    """
    lengths = [len(stored_tokens(tokenizer, problem, key)) for problem in problems]
    num_longer = sum(length > max_tokens for length in lengths)
    if num_longer:
        raise ValueError(
            f"max_tokens: {num_longer} of {len(lengths)} stored responses are longer than"
            f" {max_tokens} tokens; the longest has {max(lengths)}"
        )
