"""Prompts by difficulty: pools by running pass rate, their weights, and prompts that rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from r1lit.batches import Problem
from r1lit.errors import check_at_least
from r1lit.seeding import generator

POOLS = ("new", "hard", "medium", "easy")


@dataclass(frozen=True, kw_only=True)
class Difficulty:
    """Settings that choose prompts by the pass rates that the run itself has measured.

    A group whose responses are all right or all wrong has no advantage (DAPO 2503.14476, §3.2), so
    its prompt costs G responses and teaches nothing. After each iteration the running rate of each
    of its problems becomes ``memory`` times the former one plus the rest times the new share right.

    Args:
        weights: the sampling weight of a problem in each pool: new (never sampled), hard, medium,
            easy. 0 leaves a pool out.
        hard: problems with a lower running rate are hard.
        easy: those with a higher one are easy.
        memory: weight of the former rate, from 0 (only the last visit counts) to below 1.
        retire_after: visits in a row with every response right, or with none, after which a problem
            rests.
        retry_after: iterations that it rests. A retry of the same outcome has it rest again.
        sources: shares of the prompts by the problems' source; by numbers of problems if left out.
    """

    weights: dict[str, float] = field(
        default_factory=lambda: {"new": 1.0, "hard": 1.0, "medium": 1.0, "easy": 0.5}
    )
    hard: float = 0.25
    easy: float = 0.75
    memory: float = 0.5
    retire_after: int = 2
    retry_after: int = 50
    sources: dict[str, float] | None = None

    def __post_init__(self) -> None:
        if set(self.weights) != set(POOLS) or not all(w >= 0 for w in self.weights.values()):
            raise ValueError(
                f"data.difficulty.weights: {self.weights} are not numbers from 0 on for"
                f" {', '.join(POOLS)}"
            )
        if self.weights["new"] == 0:
            raise ValueError("data.difficulty.weights: new: 0 lets no problem be sampled first")
        if not 0 <= self.hard <= self.easy <= 1:
            raise ValueError(
                f"data.difficulty: hard: {self.hard} and easy: {self.easy} are not"
                " 0 <= hard <= easy <= 1"
            )
        if not 0 <= self.memory < 1:
            raise ValueError(f"data.difficulty.memory: {self.memory} is not in [0, 1)")
        check_at_least("data.difficulty.retire_after", self.retire_after, 1)
        check_at_least("data.difficulty.retry_after", self.retry_after, 1)
        shares = (self.sources or {"": 1.0}).values()
        if not all(share > 0 for share in shares):
            raise ValueError(f"data.difficulty.sources: {self.sources} are not all above 0")


@dataclass
class Record:
    """A problem's history: running rate, equal extreme outcomes in a row, rest until."""

    rate: float
    streak: int = 0
    rests_until: int = 0


class DifficultySampler:
    """Batches without repeats, weighted by difficulty; batch i follows the outcomes before it.

    Args:
        problems: all of them.
        sizes: how many of them there are from an iteration on, as of ``GrowingSampler``.
        count: problems of a batch.
        seed: of the choices.
        difficulty: how they are chosen.

    Raises:
        ValueError: if sources are named that there are not, or too few problems.
    """

    restarts = False

    def __init__(
        self,
        problems: Sequence[Problem],
        sizes: Mapping[int, int],
        count: int,
        seed: int,
        difficulty: Difficulty,
    ) -> None:
        self.sizes, self.count, self.seed = dict(sorted(sizes.items())), count, seed
        self.difficulty = difficulty
        self.num_learnt = 0
        self.records: dict[str, Record] = {}
        self._uids = [problem.uid for problem in problems]
        self._sources = np.array([problem.source for problem in problems])
        known, named = set(self._sources.tolist()), difficulty.sources
        if named is not None and set(named) != known:
            raise ValueError(
                f"data.difficulty.sources: {sorted(named)} are not the sources of data.train,"
                f" {sorted(known)}"
            )
        if (fewest := min(self.sizes.values())) < count:
            raise ValueError(
                f"data.difficulty: an iteration takes {count} problems, and data.train has"
                f" {fewest}; lower data.rollout.prompts_per_iteration"
            )
        self._batch: tuple[int, list[int]] | None = None

    def __len__(self) -> int:
        return max(1, len(self._uids) // self.count)

    def indices(self, i: int) -> list[int]:
        """Return the items of batch ``i``.

        Raises:
            ValueError: if the outcomes of the batch before are not there.
        """
        if self._batch is None or self._batch[0] != i:
            if i != self.num_learnt:
                raise ValueError(
                    f"data.difficulty: the prompts of iteration {i} depend on the pass rates of the"
                    f" ones before, and {self.num_learnt} are known; it needs a module that trains"
                    " by GRPO's iterations, and not by r1lit.collect.Ahead"
                )
            self._batch = i, self._choose(i)
        return self._batch[1]

    def _choose(self, i: int) -> list[int]:
        size = self.sizes[max(first for first in self.sizes if first <= i)]
        random = generator(self.seed, "difficulty", i)
        uniform = random.random(size)
        weights = np.array([self._weight(uid, i) for uid in self._uids[:size]])
        # the largest u^(1/w) are a sample without replacement (Efraimidis and Spirakis 2006)
        with np.errstate(divide="ignore"):
            order = np.where(weights > 0, np.log(uniform) / weights, -np.inf)
        rest = np.array([self._rest(uid, i) for uid in self._uids[:size]])
        ranked = np.lexsort((-uniform, rest, -order))  # who rests comes last, the soonest first
        chosen: list[int] = []
        for source, count in self._shares(size, float(random.random())).items():
            own = [int(k) for k in ranked if source is None or self._sources[k] == source]
            chosen += own[:count]
        taken = set(chosen)
        chosen += [int(k) for k in ranked if int(k) not in taken][: self.count - len(chosen)]
        return [chosen[k] for k in random.permutation(self.count)]

    def _shares(self, size: int, offset: float) -> dict[str | None, int]:
        """Return how many problems of each source are taken; their expectation is exact."""
        shares = self.difficulty.sources
        if shares is None:
            return {None: self.count}
        present = set(self._sources[:size].tolist())
        names = [name for name in sorted(shares) if name in present]
        ends = np.cumsum([shares[name] for name in names])
        places = (np.arange(self.count) + offset) / self.count * ends[-1]
        slots = np.searchsorted(ends, places, side="right")
        return {name: int((slots == k).sum()) for k, name in enumerate(names)}

    def pool(self, uid: str) -> str:
        """Return the pool that a problem is in."""
        record = self.records.get(uid)
        if record is None:
            return "new"
        if record.rate < self.difficulty.hard:
            return "hard"
        return "easy" if record.rate > self.difficulty.easy else "medium"

    def _rest(self, uid: str, i: int) -> int:
        record = self.records.get(uid)
        return 0 if record is None else max(0, record.rests_until - i)

    def _weight(self, uid: str, i: int) -> float:
        return 0.0 if self._rest(uid, i) else self.difficulty.weights[self.pool(uid)]

    def learn(self, i: int, outcomes: Mapping[str, tuple[int, int]]) -> dict[str, float]:
        """Take in an iteration's outcomes, and return what to log of them.

        Args:
            i: the iteration, of the last batch.
            outcomes: by uid, the responses that were right, and all.
        """
        assert i == self.num_learnt, (i, self.num_learnt)
        batch = [self.pool(uid) for uid in outcomes]
        for uid, (right, total) in outcomes.items():
            self._record(uid, i, right / total)
        self.num_learnt += 1
        resting = [r.rate for r in self.records.values() if r.rests_until > self.num_learnt]
        shares = {p: batch.count(p) / max(1, len(batch)) for p in POOLS}
        return {f"train/difficulty/{pool}": share for pool, share in shares.items()} | {
            "train/difficulty/num_solved": float(sum(rate > 0.5 for rate in resting)),
            "train/difficulty/num_hopeless": float(sum(rate <= 0.5 for rate in resting)),
        }

    def _record(self, uid: str, i: int, share: float) -> None:
        memory, before = self.difficulty.memory, self.records.get(uid)
        record = Record(share)
        if before is not None:
            record.rate = memory * before.rate + (1 - memory) * share
        if share in (0.0, 1.0):  # the sign of the streak is its outcome
            sign = 1 if share else -1
            same = before is not None and before.streak * sign > 0
            record.streak = before.streak + sign if before is not None and same else sign
        if abs(record.streak) >= self.difficulty.retire_after:
            record.rests_until = i + 1 + self.difficulty.retry_after
        self.records[uid] = record

    def state_dict(self) -> dict[str, Any]:
        """Return the problems' records, on which the batches from here on depend."""
        records = {uid: list(asdict(record).values()) for uid, record in self.records.items()}
        return {"num_learnt": self.num_learnt, "records": records}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.num_learnt, self._batch = state["num_learnt"], None
        self.records = {uid: Record(*values) for uid, values in state["records"].items()}
