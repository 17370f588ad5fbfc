"""The interface of collectors, which turn an iteration's prompts into a rollout with rewards."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from r1lit.batches import PromptBatch, Rollout
from r1lit.rollout.worker import Timings
from r1lit.steps.base import Run


@dataclass(frozen=True, kw_only=True)
class Collected:
    """A rollout to train on.

    ``sampled`` are all rollouts that were made for it, whose groups may have been dropped, and
    ``metrics`` are numbers to log, the same names in every iteration.
    """

    rollout: Rollout
    sampled: tuple[Rollout, ...]
    metrics: Mapping[str, float]


class Collector(ABC):
    """Collects an iteration's rollout. All ranks call each method, or none does.

    A subclass writes ``groups``, and ``__call__`` where an iteration is more than its first P
    prompts.
    """

    is_fresh: bool = True
    """True where an iteration's rollout is sampled with the weights before its updates."""

    def check(self, run: Run) -> None:  # noqa: B027
        """Refuse data or an engine that cannot be collected from, before weights are loaded.

        Raises:
            ValueError: naming the key, its value and what would be right.
        """

    def __call__(self, batch: PromptBatch, run: Run, timings: Timings) -> Collected:
        """Return an iteration's rollout, and add up the seconds that it took."""
        with self.generating(batch, run, timings):
            rollout = self.groups(batch, range(batch.num_prompts), run, timings)
        return Collected(rollout=rollout, sampled=(rollout,), metrics=self.metrics(rollout, run))

    @contextmanager
    def generating(self, batch: PromptBatch, run: Run, timings: Timings) -> Iterator[None]:
        """Gather the weights to sample with; ``groups`` is called within."""
        with run.whole_weights_for_sampling():
            yield

    @abstractmethod
    def groups(
        self, batch: PromptBatch, prompts: Sequence[int], run: Run, timings: Timings
    ) -> Rollout:
        """Return a rollout of some of the batch's prompts, named by their places in it."""

    def metrics(self, rollout: Rollout, run: Run) -> dict[str, float]:
        """Return the metrics to log of an iteration's rollout."""
        return {}

    def wait(self) -> float:
        """Wait until the engine is free for an evaluation or a checkpoint; return the seconds."""
        return 0.0

    def state(self) -> dict[Any, Any]:
        """Return the collector's part of a checkpoint; empty if it has none."""
        return {}

    def load(self, state: Mapping[Any, Any]) -> None:  # noqa: B027
        """Restore the state that ``state`` returned, on any number of ranks."""

    def close(self) -> None:  # noqa: B027
        """Let go what was begun."""
