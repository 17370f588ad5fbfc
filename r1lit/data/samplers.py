"""Samplers: the items of batch i as a pure function of the seed and i."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from r1lit.seeding import permutation


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


Sampler = ShuffledSampler | GrowingSampler | FixedSampler
