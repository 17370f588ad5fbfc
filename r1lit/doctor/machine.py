"""Memory that grows from iteration to iteration."""

from __future__ import annotations

import statistics
from itertools import pairwise

from r1lit.doctor.rule import Evidence
from r1lit.doctor.run import Run

LEAST_GIB = 0.2
LEAST_ITERATIONS = 8


def memory_grows(run: Run) -> Evidence:
    """See memory that rises in most iterations, by a tenth and 0.2 GiB at least.

    The first quarter is left out: caches fill, and the longest response so far is met. Growth that
    slows down, as of a cache that fills, is none.
    """
    for key in ("memory/host_gib", "memory/device_gib"):
        values = run.values(key)
        late = values[len(values) // 4 :]
        if len(values) < LEAST_ITERATIONS:
            continue
        steps = [after - before for before, after in pairwise(late)]
        half = len(steps) // 2
        early_rise, late_rise = sum(steps[:half]), sum(steps[half:])
        rises = statistics.fmean(step > 0 for step in steps) > 0.6
        grown = late[-1] - late[0]
        if rises and grown > max(LEAST_GIB, 0.1 * late[0]) and late_rise > 0.5 * early_rise:
            each = grown / len(steps)
            return f"{key} went from {late[0]:.2f} to {late[-1]:.2f}, {each:.3f} an iteration"
    return None
