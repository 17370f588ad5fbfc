"""The four groups of settings of `R1DataModule`, as in YAML."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from r1lit.data.packing import LossOn, PackedDocuments, TooLong
from r1lit.errors import check_at_least
from r1lit.text.prompts import CHAT


@dataclass(frozen=True, kw_only=True)
class PromptOptions:
    """How a question becomes a prompt.

    Args:
        template: a name of ``r1lit.text.templates`` (r1_zero, small_world, question_answer,
            plain), "chat" for
            the tokenizer's chat template, or a text that holds {question}.
        wording: put around the question before the template; it holds {question} and is no part of
            the problem.
        system_prompt: the system turn of the chat template, where a problem has none; empty for
            none.
        max_tokens: a longer prompt is an error; null leaves the model's context as the limit.
    """

    template: str = "r1_zero"
    wording: str = "{question}"
    system_prompt: str = ""
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        _refuse_below_one("prompts", self, "max_tokens")
        if self.system_prompt and self.template != CHAT:
            raise ValueError(
                f"data.prompts.system_prompt: {self.system_prompt[:40]!r}, but template:"
                f" {self.template!r} has no system turn; template: chat has one"
            )


@dataclass(frozen=True, kw_only=True)
class RolloutOptions:
    """What one training iteration rolls out.

    Args:
        prompts_per_iteration: P, prompts of an iteration, over all ranks.
        group_size: G, responses to each.
        num_reserve_prompts: further prompts of an iteration, for dynamic sampling.
    """

    prompts_per_iteration: int = 16
    group_size: int = 16
    num_reserve_prompts: int = 0

    def __post_init__(self) -> None:
        _refuse_below_one("rollout", self, "prompts_per_iteration", "group_size")
        if self.num_reserve_prompts < 0:
            raise ValueError(
                f"data.rollout.num_reserve_prompts: {self.num_reserve_prompts} is negative; 0 keeps"
                " none in reserve"
            )


@dataclass(frozen=True, kw_only=True)
class PackingOptions:
    """How documents are packed into rows, and rows into updates.

    Args:
        max_seq_len: tokens of a row; documents are packed whole.
        train_batch_size: rows of an update, over all ranks; 16 where neither this is given nor
            ``documents_per_update``.
        documents_per_update: documents of an update in the mean, instead of its rows, of which it
            then takes as many as hold them: a paper's batch of documents, at its learning rate.
        loss_on: "response", or "all" for pretraining.
        too_long: a document longer than a row is an "error", or loses its end ("truncate").
    """

    max_seq_len: int = 1024
    train_batch_size: int | None = None
    documents_per_update: int | None = None
    loss_on: LossOn = "response"
    too_long: TooLong = "error"

    def __post_init__(self) -> None:
        counts = ("max_seq_len", "train_batch_size", "documents_per_update")
        _refuse_below_one("packing", self, *counts)
        if self.train_batch_size is not None and self.documents_per_update is not None:
            raise ValueError(
                f"data.packing.train_batch_size: {self.train_batch_size} rows are an update, and so"
                f" are documents_per_update: {self.documents_per_update}; set one of them to null"
            )

    @property
    def num_rows(self) -> int:
        """The rows of an update, over all ranks, where documents do not decide them."""
        return 16 if self.train_batch_size is None else self.train_batch_size

    def for_rows(self, packed: PackedDocuments, world_size: int) -> PackingOptions:
        """Return the options with the rows of an update that ``documents_per_update`` come to.

        Rows come out even over ranks: 128 documents, of which 1,000 lie in 160 rows, are 20 rows on
        one rank and 24 over eight.
        """
        if self.documents_per_update is None:
            return self
        rows = self.documents_per_update * len(packed.rows) / len(packed.documents)
        size = max(1, round(rows / world_size)) * world_size
        return replace(self, train_batch_size=size, documents_per_update=None)


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions:
    """What validation, test and prediction roll out.

    Args:
        num_samples: k, responses to each problem.
        prompts_per_batch: the most problems rolled out together.
    """

    num_samples: int = 16
    prompts_per_batch: int = 64

    def __post_init__(self) -> None:
        _refuse_below_one("evaluation", self, *(field.name for field in fields(self)))


def _refuse_below_one(group: str, options: Any, *keys: str) -> None:
    for key in keys:
        count = getattr(options, key)
        if count is not None:
            check_at_least(f"data.{group}.{key}", count, 1)
