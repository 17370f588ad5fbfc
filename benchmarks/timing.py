"""Alternating two sides, and the ratios of their steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Protocol

Step = dict[str, Any]


class Side(Protocol):
    """What makes one step at a time."""

    def step(self) -> Step:
        """Make a step and return at least its seconds."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Steps of two sides made by turns, and what came before them."""

    ours: list[Step] = field(default_factory=list)
    theirs: list[Step] = field(default_factory=list)
    warmup_ours_s: float = 0.0
    warmup_theirs_s: float = 0.0


def alternate(
    ours: Side,
    theirs: Side,
    *,
    repeats: int,
    warmups: int = 1,
    show: Callable[[str], None] = lambda line: None,
) -> Comparison:
    """Make ``warmups`` uncounted steps of each side, then ``repeats`` by turns: A B A B."""
    warm = {"r1lit": 0.0, "peer": 0.0}
    steps: dict[str, list[Step]] = {"r1lit": [], "peer": []}
    for turn in range(warmups + repeats):
        for name, side in (("r1lit", ours), ("peer", theirs)):
            step = side.step()
            if turn < warmups:
                warm[name] += step["seconds"]
            else:
                steps[name].append(step)
            kind = "warm-up" if turn < warmups else f"{turn - warmups + 1} of {repeats}"
            show(f"{name:>6} {kind}: {step['seconds']:.2f} s")
    return Comparison(
        ours=steps["r1lit"],
        theirs=steps["peer"],
        warmup_ours_s=warm["r1lit"],
        warmup_theirs_s=warm["peer"],
    )


def alternate_alone(
    ours: Callable[[], AbstractContextManager[Side]],
    theirs: Callable[[], AbstractContextManager[Side]],
    *,
    repeats: int,
    show: Callable[[str], None] = lambda line: None,
) -> Comparison:
    """Do it in a process a turn, where both do not fit into memory; the first step warms up."""
    turns = []
    for turn in range(repeats):
        with ours() as first:
            of_ours = [first.step(), first.step()]
        with theirs() as second:
            of_theirs = [second.step(), second.step()]
        turns.append((of_ours, of_theirs))
        for name, steps in (("r1lit", of_ours), ("peer", of_theirs)):
            seconds = f"{steps[1]['seconds']:.2f} s after {steps[0]['seconds']:.2f} s of warm-up"
            show(f"{name:>6} {turn + 1} of {repeats}: {seconds}")
    return Comparison(
        ours=[of_ours[1] for of_ours, _ in turns],
        theirs=[of_theirs[1] for _, of_theirs in turns],
        warmup_ours_s=sum(of_ours[0]["seconds"] for of_ours, _ in turns),
        warmup_theirs_s=sum(of_theirs[0]["seconds"] for _, of_theirs in turns),
    )


def ratios(ours: Sequence[float], theirs: Sequence[float], *, memory: bool) -> dict[str, float]:
    """Return the ratios of steps that were made after each other, and both sides' medians.

    Time: theirs / ours, how many times faster. Memory: ours / theirs, the share that is needed.

    >>> ratios([1.0, 2.0], [4.0, 6.0], memory=False)["ratio_median"]
    3.5
    >>> ratios([1.0], [4.0], memory=True)["ratio_median"]
    0.25
    """
    pairs = list(zip(ours, theirs, strict=True))
    each = [a / b if memory else b / a for a, b in pairs]
    return {
        "ratio_median": median(each),
        "ratio_min": min(each),
        "ratio_max": max(each),
        "ours": median(ours),
        "theirs": median(theirs),
    }
