"""Accuracy against tokens generated, of the finished points of a sweep."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from experiments.points import Sweep
from r1lit.files import Record, read_records


def read_curves(sweep: Sweep, keys: Sequence[str] = ("train/num_tokens",)) -> list[Record]:
    """Return each finished point with its ``curve``, and the ``lines`` of its metrics.jsonl.

    The curve has the tokens generated before each evaluation, and its pass@1. The tokens of an
    iteration are under the first of ``keys`` that it has.

    Raises:
        ValueError: if no point is finished.
    """
    found = []
    for result, folder in sweep.finished():
        lines = read_records(folder / "metrics.jsonl")
        num_tokens = (next(line[key] for key in keys if key in line) for line in lines)
        spent = [0.0, *accumulate(num_tokens)]
        curve = [(spent[e["iteration"]], e["pass_at_1"]) for e in result["evaluations"]]
        found.append({**result, "curve": curve, "lines": lines})
    return found


def at_tokens(curve: Sequence[tuple[float, float]], tokens: float) -> float:
    """Return the accuracy at a number of tokens, between two evaluations in a straight line.

    >>> at_tokens([(0, 0.2), (100, 0.4)], 50)
    0.30000000000000004
    """
    place = bisect_right([x for x, _ in curve], tokens)
    if place == len(curve):
        return curve[-1][1]
    (x0, y0), (x1, y1) = curve[place - 1], curve[place]
    return y0 + (y1 - y0) * (tokens - x0) / (x1 - x0)
