"""A sampler whose log-probs are not the policy's, or whose weights are old."""

from __future__ import annotations

import re

from r1lit.doctor import settings
from r1lit.doctor.rule import Evidence, above
from r1lit.doctor.run import Run


def mismatch_bounds(run: Run) -> dict[str, float]:
    """Return how far the log-probs of the same weights may differ by rounding.

    An engine in this process computes with the trainer's own weights: in float32 nearly the same.
    """
    precision = str(run.setting("trainer.precision", ""))
    if not precision.startswith(("32", "64")):
        return {"mean_abs": 0.04, "k3_kl": 0.01, "share_outside": 0.01}
    if re.search("vllm|server|client", run.class_of("model.engine"), re.I):
        return {"mean_abs": 0.02, "k3_kl": 0.01, "share_outside": 0.01}
    return {"mean_abs": 1e-3, "k3_kl": 1e-3, "share_outside": 1e-3}


def mismatch(run: Run) -> Evidence:
    """See that the sampler's log-probs are not the trainer's, or that older weights sampled."""
    key, values = "train/mismatch/mean_abs", run.values("train/mismatch/mean_abs")
    bounds = mismatch_bounds(run)
    where, age = settings.max_staleness(run)
    if age:  # it is allowed from the second iteration on
        if values and values[0] > bounds["mean_abs"]:
            return f"{key} is {values[0]:.3g} at the first iteration, whose weights are not stale"
        old = None if settings.is_corrected(run) else above(key, 0.02)(run)
        return old and f"{old}, by {where} without a correction"
    if len(values) >= 3 and max(values) > max(10 * min(values), 2e-3):
        moves = f"{key} is {min(values):.2g} in one iteration and {max(values):.2g} in another"
        return f"{moves}: old weights sample"
    slack = 5 if settings.correction(run) else 1
    seen = (above(f"train/mismatch/{name}", slack * bound)(run) for name, bound in bounds.items())
    return next(filter(None, seen), None)


def stale(run: Run) -> Evidence:
    """See stale rollouts without a correction, or with too few effective samples."""
    where, age = settings.max_staleness(run)
    if not age:
        return None
    size = run.mean("train/mismatch/effective_sample_size")
    if size < 0.8:
        return f"train/mismatch/effective_sample_size is {size:.3g} (1: all tokens count alike)"
    kl = run.mean("train/mismatch/k3_kl")
    if not settings.is_corrected(run) and (age >= 2 or kl > 0.01):
        seen = f"{where} is {age} without a correction"
        return f"{seen}; train/mismatch/k3_kl is {kl:.2g}"
    return None
