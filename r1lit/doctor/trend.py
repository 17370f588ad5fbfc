"""The reward's own course over a run: flat within its noise, or far from the reference at once."""

from __future__ import annotations

import math
import statistics

from r1lit.doctor.rule import Evidence
from r1lit.doctor.run import Run

LEAST_ITERATIONS = 24
FAR_AT_ONCE = 0.3
"""Nat per token. The first updates start from the reference, where this is 0."""


def flat(run: Run) -> Evidence:
    """See a reward whose last third is above its first by less than two standard errors.

    They are of the iterations within each third. A run whose held-out accuracy rises is none, nor
    one that samples until groups are mixed: its rewards stay in the middle.
    """
    key = "train/reward"
    values = run.values(key)
    held_out = [e["pass_at_1"] for e in run.evaluations if e.get("pass_at_1") is not None]
    if len(values) < LEAST_ITERATIONS or (held_out and held_out[-1] > held_out[0] + 0.05):
        return None
    if run.class_of("model.collector") == "DynamicSampling":
        return None
    third = len(values) // 3
    first, last = values[:third], values[-third:]
    gain = statistics.fmean(last) - statistics.fmean(first)
    error = math.sqrt((statistics.variance(first) + statistics.variance(last)) / third)
    if gain > 2 * error:
        return None
    return (
        f"{key} gained {gain:+.3g} ± {2 * error:.2g} from the first to the last third of"
        f" {len(values)} iterations"
    )


def apart_at_once(run: Run) -> Evidence:
    """See a policy that is far from its reference before training can have moved it there."""
    key = "train/kl_reference"
    first = run.values(key)[:3]
    if len(first) < 3 or min(first) < FAR_AT_ONCE:
        return None
    seen = ", ".join(f"{value:.2g}" for value in first)
    return f"{key} is {seen} in the first three iterations"
