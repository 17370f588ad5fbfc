"""The data module of reward models: pairs or labelled responses in, batches out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from r1lit.data.loaders import (
    FixedSampler,
    Loader,
    ResumableDataModule,
    Sampler,
    ShuffledSampler,
    divide,
    resume_key,
    shard,
)
from r1lit.data.preferences import Example, PreferenceSource
from r1lit.data.protocols import LimitsContext
from r1lit.errors import check_at_least
from r1lit.seeding import permutation
from r1lit.supervised_batches import PreferenceBatch
from r1lit.text.prompts import squeezed
from r1lit.text.scored_text import ScoredRow, ScoreOn, encode_scored, scored_part

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
        encoded.append(_encoded(example, own, tokenizer))
    if not encoded:
        raise ValueError(
            f"{key}: all {len(examples)} examples are longer than max_tokens: {max_tokens}"
        )
    return EncodedExamples(examples=encoded, num_cut=num_cut, num_dropped=num_dropped)


def _encoded(
    example: Example, rows: Sequence[ScoredRow], tokenizer: PreTrainedTokenizerBase
) -> EncodedExample:
    """Return an example with its rows of tokens."""
    labels_prompt = not any(example.responses)
    return EncodedExample(
        rows=tuple(np.array(row.tokens, dtype=np.int32) for row in rows),
        lengths=tuple(
            len(row.tokens) if labels_prompt else row.num_response_tokens for row in rows
        ),
        label=example.label,
        group=example.group,
        step_places=rows[0].places(tokenizer, example.step_ends),
        step_labels=example.step_labels,
    )


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


class PreferenceDataModule(ResumableDataModule[PreferenceLoader]):
    """Pairs or labelled responses for ``RewardModule``, labelled steps for ``ProcessRewardModule``.

    Update i takes the next ``train_batch_size`` examples of a shuffled pass; batch i depends on
    ``seed`` and i alone. An epoch is ``num_iterations`` updates, or one pass; the next continues
    where it stopped. Without ``validation``, ``validation_share`` of the prompts is held out,
    chosen by ``split_seed``, so that all seeds have the same held-out examples. A prompt both
    trained on and held out is an error.

    Args:
        train: sources of examples, all pairs, all labelled, or all with labelled steps.
        validation: held-out sources.
        test: further ones, for ``r1lit test``; validation if left out.
        reference: what rewards are normalised on; the training examples if left out.
        validation_share: of the prompts of ``train``; 0 holds out nothing.
        split_seed: of that choice.
        template: of the prompts, as in ``R1DataModule``; it is exported with the model.
        score_on: what of a response the model is scored on, its "summary" or the whole "response";
            likewise. Where steps are labelled it is the whole response.
        max_tokens: the most a row may have.
        too_long: a longer row is "cut" at the beginning of its prompt, its example is left out
            ("drop"), or it is an "error". Where labelled steps would be cut, it is left out.
        train_batch_size: pairs or labelled responses of an update, over all ranks.
        num_iterations: updates of an epoch.
        examples_per_batch: of validation and test.
        seed: of the order; the command line links it to ``seed_everything``.
    """

    def __init__(
        self,
        train: list[PreferenceSource] | None = None,
        validation: list[PreferenceSource] | None = None,
        test: list[PreferenceSource] | None = None,
        reference: list[PreferenceSource] | None = None,
        validation_share: float = 0.1,
        split_seed: int = 0,
        template: str = "chat",
        score_on: ScoreOn = "response",
        max_tokens: int = 8192,
        too_long: TooLongRow = "error",
        train_batch_size: int = 256,
        num_iterations: int | None = None,
        examples_per_batch: int = 256,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if not 0 <= validation_share < 1:
            raise ValueError(f"data.validation_share: {validation_share} is not in [0, 1)")
        for key, count in (
            ("max_tokens", max_tokens),
            ("train_batch_size", train_batch_size),
            ("num_iterations", num_iterations),
            ("examples_per_batch", examples_per_batch),
        ):
            check_at_least(f"data.{key}", count, 1)
        self.sources = {
            "train": train,
            "validation": validation,
            "test": test,
            "reference": reference,
        }
        self.validation_share = validation_share
        self.split_seed = split_seed
        self.template = template
        self.score_on: ScoreOn = score_on
        self.max_tokens = max_tokens
        self.too_long: TooLongRow = too_long
        self.train_batch_size = train_batch_size
        self.num_iterations = num_iterations
        self.examples_per_batch = examples_per_batch
        self.seed = seed
        given = [source for own in self.sources.values() for source in own or []]
        kinds = {(source.rows_per_example, source.labels_steps) for source in given}
        if len(kinds) > 1:
            raise ValueError(
                "data: pairs, labelled responses or labelled steps: a model learns from one of"
                " them, and sources of several are given"
            )
        self.rows_per_example: int | None = given[0].rows_per_example if given else None
        self.labels_steps = bool(given) and given[0].labels_steps
        self.examples: dict[str, list[EncodedExample]] = {}
        self.num_cut = 0
        self.num_dropped = 0

    def setup(self, stage: str) -> None:
        """Read, split and tokenise every source, once.

        Evaluation reads the training examples too: the held-out ones are taken from them, and what
        their lengths alone predict is measured on them.
        """
        stage = str(getattr(stage, "value", stage))  # Lightning's enumeration prints as itself
        needed = {"fit": "train", "validate": "validation", "test": "test"}.get(stage)
        if needed is None:
            raise ValueError(f"data: PreferenceDataModule has nothing to {stage}")
        if stage == "fit":
            self._train_loader = self._train_state = None
            divide("data.train_batch_size", self.train_batch_size, self._process()["world_size"])
        if not self.examples:
            for split, examples in self._read().items():
                self._encode(split, examples)
        if needed not in self.examples:
            raise ValueError(f"data: nothing is given to {stage}: data.{needed} is null")

    def _read(self) -> dict[str, list[Example]]:
        read = {
            split: [example for source in own for example in source.examples()]
            for split, own in self.sources.items()
            if own
        }
        if "train" in read and "validation" not in read and self.validation_share:
            read["train"], read["validation"] = split_examples(
                read["train"], self.validation_share, self.split_seed
            )
        if "validation" in read:
            read.setdefault("test", read["validation"])
        for split in ("validation", "test"):
            refuse_shared_groups(read.get("train", []), read.get(split, []), split)
        return read

    def _encode(self, split: str, examples: Sequence[Example]) -> None:
        assert self.trainer is not None, "setup runs within a trainer"
        module = self.trainer.lightning_module
        context = module.context_length if isinstance(module, LimitsContext) else None
        encoded = encode_examples(
            examples,
            module.tokenizer,  # type: ignore[arg-type]
            template=self.template,
            score_on=self.score_on,
            max_tokens=min(self.max_tokens, context or self.max_tokens),
            too_long=self.too_long,
            key=f"data.{split}",
        )
        self.examples[split] = encoded.examples
        self.num_cut += encoded.num_cut
        self.num_dropped += encoded.num_dropped

    def _make_train_loader(self) -> PreferenceLoader:
        examples = self.examples["train"]
        return PreferenceLoader(
            examples,
            ShuffledSampler(len(examples), self.train_batch_size, self.seed),
            num_batches=self.num_iterations,
            **self._process(),
        )

    def val_dataloader(self) -> PreferenceLoader | list[Any]:
        """Return the loader of held-out examples, if there are any."""
        return self._held_out("validation") if "validation" in self.examples else []

    def test_dataloader(self) -> PreferenceLoader:
        """Return the loader of test examples."""
        return self._held_out("test")

    def _held_out(self, split: str) -> PreferenceLoader:
        process = self._process()
        sampler = FixedSampler(
            len(self.examples[split]), self.examples_per_batch, process["world_size"]
        )
        return PreferenceLoader(self.examples[split], sampler, **process)

    def describe(self) -> dict[str, Any]:
        """Return the batch plan: examples by split, and how updates are made of them."""
        plan: dict[str, Any] = {
            f"num_{split}_examples": len(examples) for split, examples in self.examples.items()
        }
        return plan | {
            "num_train_tokens": sum(len(r) for e in self.examples.get("train", []) for r in e.rows),
            "num_cut": self.num_cut,
            "num_dropped": self.num_dropped,
            "train_batch_size": self.train_batch_size,
            "num_iterations": len(self.train_dataloader()) if "train" in self.examples else 0,
        }
