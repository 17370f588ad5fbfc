"""Examples for reward models: tokenised, cut or refused, split, and loaded in batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from r1lit.batches import PreferenceBatch
from r1lit.data.loaders import Loader, divide, resume_key, shard
from r1lit.data.preferences import Example
from r1lit.data.samplers import FixedSampler, Sampler
from r1lit.seeding import permutation
from r1lit.text.scored_text import ScoreOn, encode_scored, scored_part
from r1lit.text.wording import squeezed

TooLongRow = Literal["cut", "drop", "error"]


@dataclass(frozen=True, kw_only=True)
class EncodedExample:
    """An example: one row of token ids a response, and each response's number of tokens.

    If a prompt is labelled, without a response, the length is the row's. ``step_places`` are the
    last tokens of labelled steps, by their index in the row.
    """

    rows: tuple[np.ndarray, ...]
    lengths: tuple[int, ...]
    label: float
    group: str
    step_places: tuple[int, ...] = ()
    step_labels: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class EncodedExamples:
    """Examples, how many lost the beginning of their prompt, and how many were left out."""

    examples: list[EncodedExample]
    num_cut: int
    num_dropped: int


def encode_examples(
    examples: Sequence[Example],
    tokenizer: PreTrainedTokenizerBase,
    *,
    template: str,
    score_on: ScoreOn,
    max_tokens: int,
    too_long: TooLongRow,
    key: str,
) -> EncodedExamples:
    """Return examples tokenised as ``r1lit.rewards.RewardModel`` tokenises responses.

    Args:
        examples: at least one.
        tokenizer: the reward model's.
        template: of the prompts.
        score_on: what of a response is read.
        max_tokens: the most a row may have, EOS included.
        too_long: a longer one loses the beginning of its prompt, or its example, or is an error.
        key: names the examples in errors, as ``data.train``.

    Raises:
        ValueError: if one is too long, or none is left.
    """
    rows = encode_scored(
        tokenizer,
        [example.question for example in examples for _ in example.responses],
        [
            response if example.step_ends else scored_part(response, score_on)
            for example in examples
            for response in example.responses
        ],
        template=template,
        max_tokens=max_tokens,
    )
    encoded, num_cut, num_dropped = [], 0, 0
    at = 0
    for example in examples:
        own = rows[at : at + len(example.responses)]
        at += len(own)
        is_cut = any(row.num_cut for row in own)
        if is_cut and too_long == "error":
            longest = max(len(row.tokens) + row.num_cut for row in own)
            raise ValueError(
                f"{key}: a row has {longest} tokens, more than the {max_tokens} of"
                f" max_tokens or the model's context, in the example with the prompt"
                f" {str(example.question)[:60]!r}; too_long: cut or drop lets it pass"
            )
        lost = bool(example.step_ends) and own[0].response_start < 1
        if lost or (is_cut and too_long == "drop"):
            num_dropped += 1
            continue
        num_cut += is_cut
        labels_prompt = not any(example.responses)
        encoded.append(
            EncodedExample(
                rows=tuple(np.array(row.tokens, dtype=np.int32) for row in own),
                lengths=tuple(
                    len(row.tokens) if labels_prompt else row.num_response_tokens for row in own
                ),
                label=example.label,
                group=example.group,
                step_places=own[0].places(tokenizer, example.step_ends),
                step_labels=example.step_labels,
            )
        )
    if not encoded:
        raise ValueError(
            f"{key}: all {len(examples)} examples are longer than max_tokens: {max_tokens}"
        )
    return EncodedExamples(examples=encoded, num_cut=num_cut, num_dropped=num_dropped)


def split_examples(
    examples: Sequence[Example], validation_share: float, seed: int
) -> tuple[list[Example], list[Example]]:
    """Return training and held-out examples, no group in both; the order stays.

    The share is of the groups, rounded; at least one stays on either side.

    Raises:
        ValueError: if there is one group only.
    """
    groups = sorted({squeezed(example.group) for example in examples})
    if len(groups) < 2:
        raise ValueError("validation_share: data.train has one prompt only, which cannot be split")
    num = min(max(1, round(validation_share * len(groups))), len(groups) - 1)
    order = permutation(len(groups), seed, "validation")
    held_out = {groups[i] for i in order[:num]}
    train = [e for e in examples if squeezed(e.group) not in held_out]
    return train, [e for e in examples if squeezed(e.group) in held_out]


def refuse_shared_groups(train: Sequence[Example], held_out: Sequence[Example], key: str) -> None:
    """Check that no prompt is trained on and held out; white space does not count.

    Raises:
        ValueError: saying how many are, and naming the first.
    """
    trained = {squeezed(example.group) for example in train}
    shared = [example for example in held_out if squeezed(example.group) in trained]
    if shared:
        raise ValueError(
            f"contamination: {len(shared)} of {len(held_out)} examples of data.{key} have a prompt"
            f" that is trained on, the first {shared[0].group[:60]!r}"
        )


class PreferenceLoader(Loader[PreferenceBatch]):
    """Yields the ``PreferenceBatch`` of each update."""

    def __init__(
        self,
        examples: Sequence[EncodedExample],
        sampler: Sampler,
        *,
        num_batches: int | None = None,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        content = (
            row.tobytes() + bytes([int(example.label)]) + np.array(example.step_labels).tobytes()
            for example in examples
            for row in example.rows
        )
        super().__init__(sampler, num_batches, resume_key(sampler, content))
        self.examples = examples
        self.rank = rank
        self.world_size = world_size
        if not isinstance(sampler, FixedSampler):
            divide("data.train_batch_size", sampler.count, world_size)

    def batch(self, i: int) -> PreferenceBatch:
        """Return this process's shard of update ``i``."""
        own = [
            self.examples[j] for j in shard(self._sampler.indices(i), self.rank, self.world_size)
        ]
        return PreferenceBatch(
            iteration=i,
            rows=tuple(tuple(tuple(row.tolist()) for row in example.rows) for example in own),
            lengths=tuple(example.lengths for example in own),
            label_N=torch.tensor([example.label for example in own]),
            groups=tuple(example.group for example in own),
            step_places=tuple(example.step_places for example in own),
            step_labels=tuple(example.step_labels for example in own),
        )
