"""The interfaces of steps, which prepare an iteration's rollout, and of the run they may ask."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from r1lit.batches import PromptBatch, Rollout
from r1lit.errors import hint
from r1lit.policy.held import NO_MODELS, HeldModels
from r1lit.policy.policy import ModelWrapper

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from r1lit.objectives import Objective
    from r1lit.policy import ModelSource, Policy, Responses
    from r1lit.rollout import RolloutEngine, Sampling
    from r1lit.rollout.worker import RolloutWorker
    from r1lit.verifiers import Grader

REFERENCE = "reference"
"""Entry of ``Step.reads`` of a step that needs the reference policy."""
OF_THE_LOSS = ("loss_mask_BT", "logp_old_BT", "logp_sampler_BT", "weight_BT", "selected_BT")
"""Fields of a rollout that every objective's loss reads, beside its advantages."""


class Run(Protocol):
    """The part of a training module that collectors and steps use; ``GRPOModule`` is one.

    ``loading`` is how its models are loaded, as ``r1lit.policy.load_policy`` takes it.
    """

    policy: Policy
    objective: Objective
    engine: RolloutEngine
    grader: Grader
    tokenizer: PreTrainedTokenizerBase
    source: ModelSource
    loading: dict[str, Any]
    dropout: bool
    num_inner_epochs: int
    seed: int

    @property
    def data(self) -> Any:
        """The data module, or None where loaders were given without one."""

    @property
    def reference(self) -> Any:
        """The reference policy, of a run whose loss or steps read it."""

    @property
    def steps(self) -> Sequence[Step]:
        """All steps, in their order."""

    @property
    def is_fresh(self) -> bool:
        """True where an iteration's rollout is sampled with the weights before its updates."""

    @property
    def context_length(self) -> int | None:
        """The most tokens that the policy attends over, if its configuration has a limit."""

    def sampling_at(self, iteration: int) -> Sampling:
        """Return how responses are sampled in training at an iteration."""

    def worker(self, sampling: Sampling, seed: int, training: bool = False) -> RolloutWorker:
        """Return the worker that generates and grades, its engine at the present weights."""

    def whole_weights_for_sampling(self) -> AbstractContextManager[None]:
        """Hold all weights on every rank while an engine decodes with them here."""

    def has_iteration(self, iteration: int) -> bool:
        """Return whether the run goes on to an iteration."""

    def batch_of(self, iteration: int) -> PromptBatch:
        """Return the prompts of an iteration, before its turn has come."""

    def log_probs(self, rollout: Rollout, model: Policy) -> Tensor:
        """Return log-probs ``[B, T]`` of all responses at the sampling temperature; collective."""

    def entropies(self, rollout: Rollout) -> Tensor:
        """Return the policy's entropies ``[B, T]`` in nats; collective."""

    def per_token_BT(
        self,
        rollout: Rollout,
        model: ModelWrapper,
        compute: Callable[[Responses], Tensor],
        packed: bool,
    ) -> Tensor:
        """Return a number of each token ``[B, T]`` that a model computes; collective."""

    def minibatches(self, rollout: Rollout, epochs: Iterable[int]) -> Iterator[Tensor]:
        """Yield the rows of each of the policy's minibatches, in an order of each epoch's own."""

    def optimizer_of(self, step: LearningStep, index: int = 0) -> Any:
        """Return one of a step's optimisers, as Lightning has wrapped it."""

    def update_rows(
        self,
        optimizer: Any,
        rollout: Rollout,
        rows_b: Tensor,
        loss_of: Callable[[Tensor], Tensor],
        *,
        packed: bool,
        max_grad_norm: float | None = None,
    ) -> tuple[float, float]:
        """Make one update; return its loss and gradient norm. Collective.

        ``loss_of`` gets the rows of a micro-batch and returns its share of the minibatch's loss.
        """

    def mean_over_ranks(self, count: Tensor) -> float:
        """Return the mean over ranks; all of them call it."""


MakesOptimizer = Callable[[Iterable], Optimizer]
Schedule = LRScheduler
MakesSchedule = Callable[[Optimizer], Schedule]


class Step(ABC):
    """Prepares an iteration's rollout: a mask, a reward, a weight, a number of each token.

    ``reads`` and ``writes`` name fields of ``Rollout`` and entries of its ``extra_BT``; by them an
    order that cannot be meant is refused at the start (``check_order``). A step that reads
    ``"reference"`` has the module keep one. ``held`` are models of its own, for the memory plan.

    A step asks ``run`` for what it needs. What is collective there (``log_probs``,
    ``mean_over_ranks`` and the like) all ranks call or none does: decide by numbers that all ranks
    have.
    """

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    held: HeldModels = NO_MODELS

    def check(self, run: Run) -> None:  # noqa: B027
        """Refuse settings that cannot work, before weights are loaded.

        Raises:
            ValueError: naming the key, its value and what would be right.
        """

    @abstractmethod
    def __call__(self, rollout: Rollout, run: Run) -> tuple[Rollout, dict[str, float]]:
        """Return the rollout, and numbers to log: the same names in every iteration, NaN for none.

        The rollout given is not changed: ``dataclasses.replace`` makes the one that is returned.
        """

    def state(self) -> dict[str, Any]:
        """Return the step's part of a checkpoint, beside its models; empty if it has none."""
        return {}

    def load(self, state: Mapping[str, Any]) -> None:  # noqa: B027
        """Restore the state that ``state`` returned."""


class LearningStep(Step):
    """A step with models of its own, each trained by an optimiser of its own, such as a critic.

    The module registers its models, so that they are sharded and checkpointed. Those that
    ``exports`` names are written beside the policy at the end of a run.
    """

    exports: tuple[str, ...] = ()

    @abstractmethod
    def models(self, run: Run) -> dict[str, ModelWrapper]:
        """Make its models, by the names under which the module holds them; called once."""

    @abstractmethod
    def optimizers(self) -> list[tuple[Optimizer, Schedule | None]]:
        """Return its optimisers with their schedules; its updates use ``run.optimizer_of``."""

    def holds_policy(self, iteration: int) -> bool:
        """Return whether the policy is not updated in an iteration."""
        return False

    def epochs_of(self, run: Run) -> int:
        """Return its passes over an iteration's minibatches; a schedule over the run needs them."""
        return run.num_inner_epochs


def check_order(steps: Sequence[Step], read_after: Iterable[str]) -> None:
    """Refuse steps whose order cannot be meant; nothing is sorted.

    A step may not write what an earlier one has only read, nor what an earlier one has written
    and it does not read itself; it may not read an extra that no earlier one writes; and what it
    writes must be read, by a later step, the advantages or the loss.

    Args:
        steps: in the order in which they run.
        read_after: what the advantages and the loss's terms read.

    Raises:
        ValueError: naming both steps and the field.
    """
    readers: dict[str, str] = {}
    writers: dict[str, str] = {}
    unread: dict[str, str] = {}
    for step in steps:
        name = type(step).__name__
        for field in step.reads:
            check_name(field, name)
            if is_extra(field) and field not in writers:
                raise ValueError(
                    f"model.steps: {name} reads {field}, which no step before it writes"
                )
        for field in step.writes:
            check_name(field, name)
            if field in readers:
                raise ValueError(
                    f"model.steps: {name} writes {field}, which {readers[field]} reads before it;"
                    " put it first"
                )
            if field in writers and field not in step.reads:
                raise ValueError(
                    f"model.steps: {name} overwrites {field} of {writers[field]}; put it first, or"
                    " leave one of them out"
                )
        readers |= {field: name for field in step.reads if field not in step.writes}
        writers |= dict.fromkeys(step.writes, name)
        unread = {field: of for field, of in unread.items() if field not in step.reads}
        unread |= dict.fromkeys(step.writes, name)
    for field, name in unread.items():
        if field not in (*OF_THE_LOSS, *read_after):
            raise ValueError(
                f"model.steps: {name} writes {field}, which neither the advantages nor the loss"
                " read; leave it out, or take an objective.advantage that reads it"
            )
    for field in read_after:
        if is_extra(field) and field not in writers:
            raise ValueError(
                f"model.steps: no step writes {field}, which the advantages or the loss read"
                f"{shipped_writer(field)}"
            )


def shipped_writer(field: str) -> str:
    """Return which of r1lit's own steps writes an extra, for an error; empty if none does."""
    shipped = importlib.import_module("r1lit.steps")
    for name in shipped.__all__:
        if field in getattr(getattr(shipped, name), "writes", ()):
            return f"; r1lit.steps.{name} does"
    return ""


def check_name(field: str, step: str) -> None:
    """Refuse a name that is no field of ``Rollout`` and cannot be one of its ``extra_BT``."""
    if is_extra(field) and not field.endswith("_BT"):
        right = hint(field, [*Rollout.__dataclass_fields__])
        raise ValueError(
            f"model.steps: {step} names {field}, which is no field of a rollout, and names of what"
            f" steps write for others end in _BT{right}"
        )


def is_extra(field: str) -> bool:
    """Return whether a name is one of ``Rollout.extra_BT``, and of no field."""
    return field != REFERENCE and field not in Rollout.__dataclass_fields__
