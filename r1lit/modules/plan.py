"""The batch plan: prompts x group = rows -> minibatches -> micro-batches -> updates."""

from __future__ import annotations

from dataclasses import dataclass, fields

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, kw_only=True)
class BatchPlan:
    """How many of what one iteration handles; rows are counted over all ranks.

    Raises:
        ValueError: when a count is below 1 or does not divide the one above it.
    """

    num_prompts: int
    group_size: int
    rows_per_update: int
    micro_batch_size: int
    num_inner_epochs: int
    world_size: int = 1

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 1:
                raise ValueError(f"{field.name}: {getattr(self, field.name)} is not at least 1")
        if self.num_rows % self.rows_per_update:
            raise ValueError(
                f"rows_per_update: {self.rows_per_update} does not divide {self.num_prompts}"
                f" prompts x {self.group_size} responses = {self.num_rows} rows"
            )
        if self.rows_per_update % self.world_size:
            raise ValueError(
                f"rows_per_update: {self.rows_per_update} does not divide among"
                f" {self.world_size} ranks"
            )
        if self.rows_per_rank % self.micro_batch_size:
            raise ValueError(
                f"micro_batch_size: {self.micro_batch_size} does not divide the"
                f" {self.rows_per_rank} rows of an update on each rank"
            )

    @property
    def num_rows(self) -> int:
        """B, the responses of an iteration."""
        return self.num_prompts * self.group_size

    @property
    def rows_per_rank(self) -> int:
        """Rows of one update on one rank."""
        return self.rows_per_update // self.world_size

    @property
    def num_minibatches(self) -> int:
        """Minibatches in one pass over the rows."""
        return self.num_rows // self.rows_per_update

    @property
    def updates_per_iteration(self) -> int:
        """Optimiser steps in one iteration."""
        return self.num_minibatches * self.num_inner_epochs

    @property
    def num_micro_batches(self) -> int:
        """Backward passes in one update on one rank."""
        return self.rows_per_rank // self.micro_batch_size

    def print(self, num_iterations: float, max_tokens: int) -> None:
        """Print the plan as one small table."""
        table = Table(title="Batch plan of one iteration", title_justify="left", show_header=False)
        table.add_column(justify="right")
        table.add_column()
        for count, what in (
            (self.num_prompts, "prompts"),
            (self.group_size, "responses to each (group_size)"),
            (self.num_rows, f"rows, of up to {max_tokens} tokens"),
            (self.num_minibatches, f"minibatches of {self.rows_per_update} rows"),
            (self.num_micro_batches, f"micro-batches of {self.micro_batch_size} rows in each"),
            (self.num_inner_epochs, "passes over the rows (num_inner_epochs)"),
            (self.updates_per_iteration, "updates"),
            (self.world_size, "ranks"),
            (num_iterations, "iterations an epoch"),
        ):
            table.add_row(str(count), what)
        Console().print(table)
