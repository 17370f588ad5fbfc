"""The host's memory over 200 iterations: flat, whatever an iteration keeps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tiny import data, grpo_config, merge, metrics

from r1lit.cli import main

WARM = 60
"""Iterations in which caches fill: kernels of new shapes, tokens of new texts."""
LIMIT_MIB = 4.0
"""Per 100 iterations; a rollout of these runs with its logits kept would be several times that."""
LEAK_MIB = 0.25


class Leak:
    """A reward that keeps memory for every call."""

    def __init__(self) -> None:
        self.kept: list[np.ndarray] = []

    def __call__(self, responses):
        self.kept.append(np.ones(int(LEAK_MIB * 2**17)))
        return [len(response.text) % 3 for response in responses]


def slope(run: Path) -> float:
    """Return MiB per 100 iterations, by the median of all pairs' slopes (Theil and Sen)."""
    used = 1024 * np.array([row["memory/host_gib"] for row in metrics(run)])[WARM:]
    first, second = np.triu_indices(len(used), k=1)
    return 100 * float(np.median((used[second] - used[first]) / (second - first)))


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize("leaks", [False, True])
def test_memory_is_flat(tmp_path: Path, policy: Path, leaks: bool) -> None:
    change = merge(data(num_iterations=200), {"trainer": {"limit_val_batches": 0}})
    change = merge(change, {"trainer": {"val_check_interval": 1}})
    if leaks:
        reward = {"rewards": [{"class_path": "test_memory_slope.Leak"}]}
        change = merge(change, {"model": {"init_args": reward}})
    run = tmp_path / "run"
    main(["fit", "-c", str(grpo_config(run, policy, change))])
    print(f"{slope(run):.2f} MiB per 100 iterations")
    assert len(metrics(run)) == 200
    if leaks:
        assert slope(run) > 0.8 * 100 * LEAK_MIB
    else:
        assert slope(run) < LIMIT_MIB
