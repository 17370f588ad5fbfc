"""Loaders: batch i as a pure function of the seed and i.

They have a length, so Lightning prefetches nothing and the number of batches yielded is the number
trained on: a checkpoint written after iteration i resumes at i + 1. (For a loader without a length
Lightning 2.6 draws one batch ahead, and the state would be off by one.) They are no
``torch.utils.data.DataLoader``, so Lightning injects no sampler: each process takes its own share
of every batch, and all shares together are the batch that one process would see.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import Any, Generic, TypeVar

from r1lit.batches import PackedRows, Problem, PromptBatch
from r1lit.data.packing import LossOn, build_rows
from r1lit.data.prompts import EncodedDocument
from r1lit.seeding import permutation

Batch = TypeVar("Batch")
Item = TypeVar("Item")


class ShuffledSampler:
    """Endless passes over ``size`` items, each in a new order; batch i takes the next ``count``.

    No item repeats within a pass. A batch may span two passes, so that none is left out.
    """

    restarts = False

    def __init__(self, size: int, count: int, seed: int) -> None:
        self.size = size
        self.count = count
        self.seed = seed
        self._order = lru_cache(maxsize=2)(self._permutation)

    def _permutation(self, pass_: int) -> list[int]:
        return permutation(self.size, self.seed, "order", pass_)

    def __len__(self) -> int:
        return max(1, self.size // self.count)

    def indices(self, i: int) -> list[int]:
        """Return the items of batch ``i``."""
        draws = range(i * self.count, (i + 1) * self.count)
        return [self._order(draw // self.size)[draw % self.size] for draw in draws]


class FixedSampler:
    """One pass over ``size`` items in their order, in batches of nearly equal size.

    There are as many batches as it takes to hold at most ``count`` each, but no batch has fewer
    items than there are processes, since a process with nothing to do would break the collectives.
    """

    restarts = True

    def __init__(self, size: int, count: int, world_size: int = 1) -> None:
        if size < world_size:
            raise ValueError(
                f"{size} problems or rows to validate on are too few for {world_size} processes"
            )
        self.size = size
        self.num_batches = min(-(-size // count), size // world_size)

    def __len__(self) -> int:
        return self.num_batches

    def indices(self, i: int) -> list[int]:
        """Return the items of batch ``i``."""
        n = self.num_batches
        return list(range(i * self.size // n, (i + 1) * self.size // n))


Order = ShuffledSampler | FixedSampler


def share(items: Sequence[Item], rank: int, world_size: int) -> Sequence[Item]:
    """Return the contiguous share of process ``rank``; the shares together are ``items``."""
    n = len(items)
    return items[rank * n // world_size : (rank + 1) * n // world_size]


def fingerprint(items: Iterable[bytes]) -> str:
    """Return a short digest of what a loader draws from, to recognise it on resume."""
    digest = hashlib.blake2b(digest_size=8)
    for item in items:
        digest.update(len(item).to_bytes(8, "little") + item)
    return digest.hexdigest()


class Loader(ABC, Generic[Batch]):
    """Yields the next ``len(self)`` batches on every ``iter``, from where the last one stopped.

    With a ``FixedSampler`` it starts over instead. ``plan`` is what a batch depends on besides its
    index: a state is refused by a loader with another plan, since its batches would not continue
    the run.
    """

    def __init__(self, order: Order, num_batches: int | None, plan: dict[str, Any]) -> None:
        self.order = order
        self.num_batches = len(order) if num_batches is None else num_batches
        self.num_yielded = 0
        self.plan = plan

    @abstractmethod
    def batch(self, i: int) -> Batch:
        """Return batch ``i``."""

    def __len__(self) -> int:
        return self.num_batches

    def __iter__(self) -> Iterator[Batch]:
        if self.order.restarts:
            self.num_yielded = 0
        for _ in range(len(self)):
            batch = self.batch(self.num_yielded)
            self.num_yielded += 1
            yield batch

    def state_dict(self) -> dict[str, Any]:
        """Return the number of batches yielded since the run began, and the plan."""
        return {"num_yielded": self.num_yielded, "plan": self.plan}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue behind the last batch yielded.

        Raises:
            ValueError: naming the keys on which the run that is resumed differs.
        """
        saved = state["plan"]
        differ = sorted(k for k in {*saved, *self.plan} if saved.get(k) != self.plan.get(k))
        if differ:
            raise ValueError(
                "ckpt_path: the checkpoint was written with other data: "
                + ", ".join(f"{k} was {saved.get(k)} and is {self.plan.get(k)}" for k in differ)
            )
        self.num_yielded = state["num_yielded"]


class PromptLoader(Loader[PromptBatch]):
    """Yields the ``PromptBatch`` of each iteration: prompts to roll out and a reserve behind them.

    The last ``num_reserve`` of the items drawn are the reserve. What of it is not used is drawn
    again in the next pass only.
    """

    def __init__(
        self,
        problems: Sequence[Problem],
        prompts: Sequence[tuple[int, ...]],
        order: Order,
        *,
        group_size: int,
        num_reserve: int = 0,
        num_batches: int | None = None,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        plan = batch_plan(order, map(_identity, problems, prompts))
        super().__init__(order, num_batches, plan | {"num_reserve_prompts": num_reserve})
        self.problems = problems
        self.prompts = prompts
        self.group_size = group_size
        self.num_reserve = num_reserve
        self.rank = rank
        self.world_size = world_size
        if isinstance(order, ShuffledSampler):
            divide("data.rollout.prompts_per_iteration", order.count - num_reserve, world_size)
            divide("data.rollout.num_reserve_prompts", num_reserve, world_size)

    def batch(self, i: int) -> PromptBatch:
        """Return this process's share of iteration ``i``."""
        indices = self.order.indices(i)
        split = len(indices) - self.num_reserve
        mine = share(range(split), self.rank, self.world_size)
        reserve = share(range(split, len(indices)), self.rank, self.world_size)
        # a batch of an evaluation continues the numbering of the one before it
        first = indices[0] if isinstance(self.order, FixedSampler) else 0
        drawn = [*mine, *reserve]
        return PromptBatch(
            iteration=i,
            problems=tuple(self.problems[indices[j]] for j in drawn),
            prompts=tuple(self.prompts[indices[j]] for j in drawn),
            positions=tuple(first + j for j in drawn),
            group_size=self.group_size,
            num_prompts=len(mine),
        )


class RowLoader(Loader[PackedRows]):
    """Yields the ``PackedRows`` of each update; ``rows`` list indices into ``documents``."""

    def __init__(
        self,
        documents: Sequence[EncodedDocument],
        rows: Sequence[Sequence[int]],
        order: Order,
        *,
        max_seq_len: int,
        pad_id: int,
        loss_on: LossOn,
        num_batches: int | None = None,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        plan = batch_plan(order, (document.tokens.tobytes() for document in documents))
        super().__init__(
            order, num_batches, plan | {"max_seq_len": max_seq_len, "loss_on": loss_on}
        )
        self.documents = documents
        self.rows = rows
        self.max_seq_len = max_seq_len
        self.pad_id = pad_id
        self.loss_on = loss_on
        self.rank = rank
        self.world_size = world_size
        if isinstance(order, ShuffledSampler):
            divide("data.packing.train_batch_size", order.count, world_size)

    def batch(self, i: int) -> PackedRows:
        """Return this process's share of update ``i``."""
        mine = share(self.order.indices(i), self.rank, self.world_size)
        return build_rows(
            self.documents,
            [self.rows[j] for j in mine],
            max_seq_len=self.max_seq_len,
            pad_id=self.pad_id,
            loss_on=self.loss_on,
            iteration=i,
        )


def _identity(problem: Problem, prompt: tuple[int, ...]) -> bytes:
    """Return what a problem is, its prompt's tokens included, as bytes."""
    return json.dumps([asdict(problem), prompt], sort_keys=True, default=str).encode()


def batch_plan(order: Order, items: Iterable[bytes]) -> dict[str, Any]:
    """Return what batches depend on: the data and, where it is shuffled, seed and batch size."""
    plan: dict[str, Any] = {"data": fingerprint(items)}
    if isinstance(order, ShuffledSampler):
        plan |= {"seed": order.seed, "items_per_batch": order.count}
    return plan


def divide(key: str, count: int, world_size: int) -> None:
    """Check that a batch comes out even over processes.

    Raises:
        ValueError: naming ``key`` if it does not.
    """
    if count % world_size:
        raise ValueError(f"{key}: {count} does not divide among {world_size} processes")
