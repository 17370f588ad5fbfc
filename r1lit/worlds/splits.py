"""The split of the world's problems: 60 % corpus, 20 % training, 20 % held out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeVar, get_args

from r1lit.errors import check_one_of
from r1lit.seeding import generator, permutation

T = TypeVar("T")
Split = Literal["corpus", "train", "held_out"]
SPLIT_SEED = 20250120
"""Decides the split of every world family (the day of DeepSeek-R1's release)."""
MOST_REPEATS = 20
"""Repeated draws in a row for each problem found, before a pool is said to hold no more."""


def check_split(split: str) -> None:
    """Raise a ``ValueError`` that names ``split`` unless there is one of that name."""
    check_one_of("split", split, get_args(Split))


def hashed_split(family: str, key: str) -> Split:
    """Return the split of one of more problems than can be listed: a hash of its key decides."""
    share = generator(SPLIT_SEED, family, key).random()
    return "held_out" if share < 0.2 else "train" if share < 0.4 else "corpus"


def listed_split(everything: Sequence[T], split: Split, *family: str) -> list[T]:
    """Return the elements of a family's whole list that are in ``split``, in the list's order."""
    order = permutation(len(everything), SPLIT_SEED, *family)
    fifth = len(everything) // 5
    parts = {
        "held_out": order[:fifth],
        "train": order[fifth : 2 * fifth],
        "corpus": order[2 * fifth :],
    }
    return [everything[i] for i in sorted(parts[split])]


def draw_distinct(
    draw: Callable[[], T], key: Callable[[T], str], num_problems: int, pool: str
) -> dict[str, T]:
    """Return ``num_problems`` of those that ``draw`` returns by their keys, each key once.

    Raises:
        ValueError: naming the ``pool``, if it holds too few.
    """
    found: dict[str, T] = {}
    repeats = 0
    while len(found) < num_problems:
        drawn = draw()
        name = key(drawn)
        repeats = repeats + 1 if name in found else 0
        found.setdefault(name, drawn)
        if repeats > MOST_REPEATS * (len(found) + 10):
            raise ValueError(
                f"num_problems: {num_problems} is more than {pool} holds, about {len(found)}"
            )
    return found
