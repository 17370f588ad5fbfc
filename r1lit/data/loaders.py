"""Loaders: batch i as a pure function of the seed and i.

They have a length, so Lightning prefetches nothing and the number of batches yielded is the number
trained on: a checkpoint written after iteration i resumes at i + 1. (For a loader without a length
Lightning 2.6 takes one batch ahead, and the state would be off by one.) They are no
``torch.utils.data.DataLoader``, so Lightning injects no sampler: each process takes its own shard
of every batch, and all shards together are the batch that one process would get.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import Any, Generic, TypeVar

from lightning.pytorch import LightningDataModule
from lightning.pytorch.utilities import rank_zero_warn

from r1lit.batches import Problem, PromptBatch
from r1lit.data.difficulty import DifficultySampler
from r1lit.data.packing import EncodedDocument, LossOn, build_rows
from r1lit.seeding import permutation
from r1lit.supervised_batches import PackedRows


class ShuffledSampler:
    """Endless passes over ``size`` items, each in a new order; batch i takes the next ``count``.

    No item repeats within a pass. A batch may span two passes, so that none is left out. ``first``
    is the run's iteration that batch 0 is; the orders depend on it.
    """

    restarts = False

    def __init__(self, size: int, count: int, seed: int, first: int = 0) -> None:
        self.size = size
        self.count = count
        self.seed = seed
        self.name = ("order", "from", first) if first else ("order",)
        self._order = lru_cache(maxsize=2)(self._permutation)

    def _permutation(self, pass_: int) -> list[int]:
        return permutation(self.size, self.seed, *self.name, pass_)

    def __len__(self) -> int:
        return max(1, self.size // self.count)

    def indices(self, i: int) -> list[int]:
        """Return the items of batch ``i``."""
        positions = range(i * self.count, (i + 1) * self.count)
        return [self._order(at // self.size)[at % self.size] for at in positions]


class GrowingSampler:
    """Shuffled passes over the first ``sizes[f]`` items, for ``f`` the last one up to batch i.

    Where the items grow, new passes over all of them begin, so each is as likely as any other.
    With ``{0: 3, 2: 5}`` batches 0 and 1 take from items 0 to 2, later ones from 0 to 4. With one
    size it equals a ``ShuffledSampler``.
    """

    restarts = False

    def __init__(self, sizes: Mapping[int, int], count: int, seed: int) -> None:
        assert 0 in sizes, sizes
        self.sizes = dict(sorted(sizes.items()))
        self.count = count
        self.seed = seed
        self._samplers = {
            first: ShuffledSampler(size, count, seed, first) for first, size in self.sizes.items()
        }

    def __len__(self) -> int:
        return len(self._samplers[max(self.sizes)])

    def indices(self, i: int) -> list[int]:
        """Return the items of batch ``i``."""
        first = max(f for f in self.sizes if f <= i)
        return self._samplers[first].indices(i - first)


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


Sampler = ShuffledSampler | GrowingSampler | FixedSampler | DifficultySampler


Batch = TypeVar("Batch")
Item = TypeVar("Item")


def shard(items: Sequence[Item], rank: int, world_size: int) -> Sequence[Item]:
    """Return the contiguous shard of process ``rank``; the shards together are ``items``."""
    n = len(items)
    return items[rank * n // world_size : (rank + 1) * n // world_size]


def fingerprint(items: Iterable[bytes]) -> str:
    """Return a short digest of a loader's items, to recognise them on resume."""
    digest = hashlib.blake2b(digest_size=8)
    for item in items:
        digest.update(len(item).to_bytes(8, "little") + item)
    return digest.hexdigest()


class Loader(ABC, Generic[Batch]):
    """Yields the next ``len(self)`` batches on every ``iter``, from where the last one stopped.

    With a ``FixedSampler`` it starts over instead. ``resume_key`` is what a batch depends on
    besides its index: a state with another key is refused, since the batches would not continue
    the run. With ``accepts_changed_data`` there is a warning instead.
    """

    accepts_changed_data = False

    def __init__(
        self, sampler: Sampler, num_batches: int | None, resume_key: dict[str, Any]
    ) -> None:
        self._sampler = sampler
        self.num_batches = len(sampler) if num_batches is None else num_batches
        self.num_yielded = 0
        self.resume_key = resume_key

    @abstractmethod
    def batch(self, i: int) -> Batch:
        """Return batch ``i``."""

    def __len__(self) -> int:
        return self.num_batches

    def __iter__(self) -> Iterator[Batch]:
        if self._sampler.restarts:
            self.num_yielded = 0
        for _ in range(len(self)):
            batch = self.batch(self.num_yielded)
            self.num_yielded += 1
            yield batch

    def state_dict(self) -> dict[str, Any]:
        """Return the number of batches yielded since the run began, and what they depend on."""
        state = {"num_yielded": self.num_yielded, "plan": self.resume_key}  # its name on disk
        if isinstance(self._sampler, DifficultySampler):
            state["difficulty"] = self._sampler.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue after the last batch yielded.

        Raises:
            ValueError: naming the keys on which the run that is resumed differs.
        """
        saved, now = state["plan"], self.resume_key
        differ = sorted(k for k in {*saved, *now} if saved.get(k) != now.get(k))
        changes = ", ".join(f"{k} was {saved.get(k)} and is {now.get(k)}" for k in differ)
        if differ and not self.accepts_changed_data:
            raise ValueError(
                f"ckpt_path: the checkpoint was written with other data: {changes}; set them back,"
                " begin a new run in another folder, or continue with --resume_changed true"
            )
        if differ:
            rank_zero_warn(f"ckpt_path: continuing although the data changed: {changes}")
        self.num_yielded = state["num_yielded"]
        if isinstance(self._sampler, DifficultySampler):
            self._sampler.load_state_dict(
                state.get("difficulty", {"num_learnt": self.num_yielded, "records": {}})
            )


class PromptLoader(Loader[PromptBatch]):
    """Yields the ``PromptBatch`` of each iteration: prompts to roll out, then a reserve.

    The last ``num_reserve`` items of a batch are the reserve. Unused reserve prompts come again in
    the next pass only.
    """

    def __init__(
        self,
        problems: Sequence[Problem],
        prompts: Sequence[tuple[int, ...]],
        sampler: Sampler,
        *,
        group_size: int,
        num_reserve: int = 0,
        num_batches: int | None = None,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        key = resume_key(sampler, map(_identity, problems, prompts))
        super().__init__(sampler, num_batches, key | {"num_reserve_prompts": num_reserve})
        self.problems = problems
        self.prompts = prompts
        self.group_size = group_size
        self.num_reserve = num_reserve
        self.rank = rank
        self.world_size = world_size
        if not isinstance(sampler, FixedSampler):
            divide("data.rollout.prompts_per_iteration", sampler.count - num_reserve, world_size)
            divide("data.rollout.num_reserve_prompts", num_reserve, world_size)

    def learn(self, i: int, outcomes: Mapping[str, tuple[int, int]]) -> dict[str, float]:
        """Take in the outcomes of batch ``i``; see ``DifficultySampler.learn``."""
        assert isinstance(self._sampler, DifficultySampler)
        return self._sampler.learn(i, outcomes)

    def batch(self, i: int) -> PromptBatch:
        """Return this process's shard of iteration ``i``."""
        indices = self._sampler.indices(i)
        split = len(indices) - self.num_reserve
        mine = shard(range(split), self.rank, self.world_size)
        reserve = shard(range(split, len(indices)), self.rank, self.world_size)
        # a batch of an evaluation continues the numbering of the one before it
        first = indices[0] if isinstance(self._sampler, FixedSampler) else 0
        chosen = [*mine, *reserve]
        return PromptBatch(
            iteration=i,
            problems=tuple(self.problems[indices[j]] for j in chosen),
            prompts=tuple(self.prompts[indices[j]] for j in chosen),
            positions=tuple(first + j for j in chosen),
            group_size=self.group_size,
            num_prompts=len(mine),
        )


class RowLoader(Loader[PackedRows]):
    """Yields the ``PackedRows`` of each update; ``rows`` list indices into ``documents``."""

    def __init__(
        self,
        documents: Sequence[EncodedDocument],
        rows: Sequence[Sequence[int]],
        sampler: Sampler,
        *,
        max_seq_len: int,
        pad_id: int,
        loss_on: LossOn,
        num_batches: int | None = None,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        key = resume_key(sampler, (document.tokens.tobytes() for document in documents))
        key |= {"max_seq_len": max_seq_len, "loss_on": loss_on}
        super().__init__(sampler, num_batches, key)
        self.documents = documents
        self.rows = rows
        self.max_seq_len = max_seq_len
        self.pad_id = pad_id
        self.loss_on = loss_on
        self.rank = rank
        self.world_size = world_size
        if not isinstance(sampler, FixedSampler):
            divide("data.packing.train_batch_size", sampler.count, world_size)

    def batch(self, i: int) -> PackedRows:
        """Return this process's shard of update ``i``."""
        mine = shard(self._sampler.indices(i), self.rank, self.world_size)
        return build_rows(
            self.documents,
            [self.rows[j] for j in mine],
            max_seq_len=self.max_seq_len,
            pad_id=self.pad_id,
            loss_on=self.loss_on,
            iteration=i,
        )


def _identity(problem: Problem, prompt: tuple[int, ...]) -> bytes:
    """Return all of a problem and its prompt's tokens, as bytes."""
    return json.dumps([asdict(problem), prompt], sort_keys=True, default=str).encode()


def resume_key(sampler: Sampler, items: Iterable[bytes]) -> dict[str, Any]:
    """Return the settings that decide batches: the data and, if shuffled, seed and batch size."""
    key: dict[str, Any] = {"data": fingerprint(items)}
    if not isinstance(sampler, FixedSampler):
        key |= {"seed": sampler.seed, "items_per_batch": sampler.count}
    if isinstance(sampler, GrowingSampler) and len(sampler.sizes) > 1:
        key["num_problems_from_iteration"] = sampler.sizes
    if isinstance(sampler, DifficultySampler):
        key["difficulty"] = asdict(sampler.difficulty) | {"sizes": sampler.sizes}
    return key


def divide(key: str, count: int, world_size: int) -> None:
    """Check that a batch divides evenly among processes.

    Raises:
        ValueError: naming ``key`` if it does not.
    """
    if count % world_size:
        raise ValueError(f"{key}: {count} does not divide among {world_size} processes")


TrainLoader = TypeVar("TrainLoader", bound=Loader)


class ResumableDataModule(LightningDataModule, Generic[TrainLoader]):
    """Keeps one training loader throughout a fit, and saves and loads its state."""

    accepts_changed_data = False  # set where a run is resumed with other data on purpose

    def __init__(self) -> None:
        super().__init__()
        self._train_loader: TrainLoader | None = None
        self._train_state: dict[str, Any] | None = None

    @abstractmethod
    def _make_train_loader(self) -> TrainLoader:
        """Return a new loader of training batches."""

    def train_dataloader(self) -> TrainLoader:
        """Return the loader of training batches, the same one throughout a fit."""
        if self._train_loader is None:
            self._train_loader = self._make_train_loader()
            self._train_loader.accepts_changed_data = self.accepts_changed_data
            if self._train_state is not None:
                self._train_loader.load_state_dict(self._train_state)
        return self._train_loader

    def state_dict(self) -> dict[str, Any]:
        """Return the training loader's state.

        Lightning 2.6 saves it with its loops too, but does not load it from a checkpoint that was
        written at the end of an epoch: such a run would begin again at iteration 0.
        """
        return {} if self._train_loader is None else {"train": self._train_loader.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the training loader's state, or keep it until the loader is made."""
        self._train_state = state_dict.get("train")
        if self._train_loader is not None and self._train_state is not None:
            self._train_loader.load_state_dict(self._train_state)

    def _process(self) -> dict[str, int]:
        """Return this process's rank and the number of processes that share the data."""
        kwargs = getattr(self.trainer, "distributed_sampler_kwargs", None) or {}
        return {"rank": kwargs.get("rank", 0), "world_size": kwargs.get("num_replicas", 1)}
