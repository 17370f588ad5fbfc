"""What collectors and steps may ask of the module that runs them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from r1lit.batches import PromptBatch
    from r1lit.objectives import Correction
    from r1lit.rollout import RolloutEngine, Sampling
    from r1lit.rollout.worker import RolloutWorker
    from r1lit.verifiers import Grader


class Run(Protocol):
    """A module that runs iterations; ``GRPOModule`` is one.

    ``data`` is its data module, or None where loaders were given without one.
    """

    data: Any
    engine: RolloutEngine
    grader: Grader
    correction: Correction | None
    seed: int

    def sampling_at(self, iteration: int) -> Sampling:
        """Return how responses are sampled in training at an iteration."""

    def worker(self, sampling: Sampling, seed: int, training: bool = False) -> RolloutWorker:
        """Return what generates and grades, its engine at the policy's present weights."""

    def whole_weights_for_sampling(self) -> AbstractContextManager[None]:
        """Hold all weights on every rank while an engine decodes with them here."""

    def has_iteration(self, iteration: int) -> bool:
        """Return whether the run goes on to an iteration."""

    def batch_of(self, iteration: int) -> PromptBatch:
        """Return the prompts of an iteration, before its turn has come."""

    def mean_over_ranks(self, count: Tensor) -> float:
        """Return the mean over ranks; all of them call it."""
