"""The batch plan of a run: prompts x group = rows -> minibatches -> micro-batches -> updates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from textwrap import fill
from typing import TYPE_CHECKING, Any

from r1lit.errors import check_at_least

if TYPE_CHECKING:
    from r1lit.data.datamodule import RolloutOptions
    from r1lit.objectives import AdvantageEstimator


@dataclass(frozen=True, kw_only=True)
class BatchPlan:
    """Numbers of prompts, rows, minibatches and updates of an iteration, over all ranks.

    Raises:
        ValueError: when a count is below 1 or does not divide the one above it.
    """

    num_prompts: int
    group_size: int
    train_batch_size: int
    micro_batch_tokens: int
    num_inner_epochs: int
    world_size: int = 1

    def __post_init__(self) -> None:
        for field in fields(self):
            check_at_least(field.name, getattr(self, field.name), 1)
        if self.num_rows % self.train_batch_size:
            raise ValueError(
                f"train_batch_size: {self.train_batch_size} does not divide {self.num_prompts}"
                f" prompts x {self.group_size} responses = {self.num_rows} rows"
            )
        check_update(self.train_batch_size, self.world_size)

    @property
    def num_rows(self) -> int:
        """B, the responses of an iteration."""
        return self.num_prompts * self.group_size

    @property
    def num_minibatches(self) -> int:
        """Minibatches in one pass over the rows."""
        return self.num_rows // self.train_batch_size

    @property
    def updates_per_iteration(self) -> int:
        """Optimiser steps in one iteration."""
        return self.num_minibatches * self.num_inner_epochs

    def print(
        self,
        data: dict[str, Any],
        max_tokens: int,
        max_tokens_from: Mapping[int, int] | None = None,
    ) -> None:
        """Print the plan; ``data`` is the data module's description.

        ``max_tokens_from``: what replaces ``max_tokens`` from an iteration on.

        Raises:
            ValueError: if ``data`` has no number of problems.
        """
        if "num_train_problems" not in data:
            raise ValueError(
                "data.train: null, but GRPOModule trains on problems; documents (data.documents)"
                " are for SFTModule"
            )
        problems = data["num_train_problems"]
        growth = data.get("num_problems_from_iteration", {})
        grown = [(count, f"of these problems from iteration {i} on") for i, count in growth.items()]
        later = sorted((max_tokens_from or {}).items())
        prompts = f"prompts, of {sum(problems.values()):,} problems ({listed(problems)})"
        print_plan(
            (self.num_prompts, prompts),
            *(grown if len(grown) > 1 else []),
            (self.group_size, "responses to each (group_size)"),
            (self.num_rows, f"rows, of up to {max_tokens} tokens"),
            *((most, f"tokens at most from iteration {i} on") for i, most in later),
            (self.num_minibatches, f"minibatches of {self.train_batch_size} rows"),
            (self.micro_batch_tokens, "tokens in a micro-batch, at most"),
            *(
                [(self.num_inner_epochs, "passes over the rows")]
                if self.num_inner_epochs > 1
                else []
            ),
            (self.updates_per_iteration, "updates"),
            *([(self.world_size, "ranks")] if self.world_size > 1 else []),
            (data["num_iterations"], "iterations an epoch"),
        )


def check_update(train_batch_size: int, world_size: int) -> None:
    """Check that an update's rows come out even over ranks.

    Raises:
        ValueError: naming the count that does not divide.
    """
    if train_batch_size % world_size:
        raise ValueError(
            f"train_batch_size: {train_batch_size} does not divide among {world_size} ranks"
        )


def check_rollout(rollout: RolloutOptions, advantage: AdvantageEstimator) -> None:
    """Check that groups are large enough to compare.

    Raises:
        ValueError: naming the key and what would be right.
    """
    smallest = advantage.min_group_size
    if rollout.group_size < smallest:
        raise ValueError(
            f"data.rollout.group_size: {rollout.group_size} is below {smallest}, which"
            f" {type(advantage).__name__} needs to compare responses"
        )


def print_supervised_plan(data: dict[str, Any], micro_batch_tokens: int) -> None:
    """Print how documents become rows and rows become updates."""
    documents = data["train_batch_size"] * data["train_num_documents"] / data["train_num_rows"]
    print_plan(
        (data["train_num_documents"], "documents in the training set"),
        (data["num_truncated_documents"], "of all documents cut off at max_seq_len"),
        (data["train_num_tokens"], f"tokens, {data['train_num_targets']} of them targets"),
        (
            data["train_num_rows"],
            f"rows of {data['max_seq_len']} tokens, {data['train_fill']:.0%} filled",
        ),
        (
            data["train_batch_size"],
            f"rows in an iteration, over all ranks: {documents:.1f} documents",
        ),
        (micro_batch_tokens, "tokens in a micro-batch, at most"),
        (1, "update"),
        (data["num_iterations"], "iterations an epoch"),
    )


def print_preference_plan(
    data: dict[str, Any], rows_per_example: int, micro_batch_tokens: int
) -> None:
    """Print how examples become updates of a reward model."""
    kind = "pairs" if rows_per_example == 2 else "labelled responses"
    print_plan(
        (data["num_train_examples"], f"{kind} in the training set"),
        (data.get("num_validation_examples", 0), "held out"),
        (data["num_train_tokens"], "tokens to train on"),
        (data["num_cut"], "with a prompt cut at its beginning"),
        (data["num_dropped"], "left out as too long"),
        (data["train_batch_size"], f"{kind} in an iteration, over all ranks"),
        (micro_batch_tokens, "tokens in a micro-batch, at most, padding included"),
        (1, "update"),
        (data["num_iterations"], "iterations an epoch"),
    )


def print_plan(*counts: tuple[int, str]) -> None:
    """Print counts and what they count, as one paragraph."""
    text = "; ".join(f"{count:,} {what}" for count, what in counts)
    print_paragraph(f"Batch plan of one iteration: {text}")


def print_paragraph(text: str) -> None:
    """Print a text in lines of at most 100 characters, all but the first indented."""
    print(fill(text, width=100, subsequent_indent="  ", break_on_hyphens=False))


def listed(counts: dict[str, int]) -> str:
    """Write counts out.

    >>> listed({"countdown": 131, "chain": 60})
    '131 countdown, 60 chain'
    """
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())
