"""Objects of all ranks of a distributed run."""

from __future__ import annotations

import warnings
from typing import Any, SupportsFloat, TypeVar

from torch import distributed

T = TypeVar("T")


def is_alone() -> bool:
    """Return whether this process talks to no other rank."""
    return not (distributed.is_available() and distributed.is_initialized())


def of_all_ranks(own: T) -> list[T]:
    """Return each rank's value, in the ranks' order; ``[own]`` in a single process.

    All ranks call it. Tensors should be on the CPU.
    """
    if is_alone():
        return [own]
    ranks: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(ranks, own)
    return ranks


def of_first_rank(own: T) -> T:
    """Return rank 0's value; all ranks call it."""
    return of_all_ranks(own)[0]


def own_rank() -> int:
    """Return this process's rank, 0 if it is alone."""
    return 0 if is_alone() else distributed.get_rank()


def mean_over_ranks(number: SupportsFloat) -> float:
    """Return the mean of a number over ranks; all of them call it."""
    numbers = of_all_ranks(float(number))
    return sum(numbers) / len(numbers)


def num_ranks() -> int:
    """Return how many processes the run has."""
    return 1 if is_alone() else distributed.get_world_size()


def warn_on_first_rank(text: str) -> None:
    """Warn once, however many ranks call it."""
    if own_rank() == 0:
        warnings.warn(text, stacklevel=3)
