"""Norms, clipping and normalisers of sharded weights are those of one process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import ROOT

HERE = Path(__file__).parent
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runs(policy: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("sharded")
    found = {}
    for ranks in (1, 2):
        results = folder / f"{ranks}.pt"
        done = subprocess.run(
            [sys.executable, HERE / "sharded_run.py", policy, results, str(ranks)],
            env=os.environ | {"PYTHONPATH": str(ROOT), "GLOO_SOCKET_IFNAME": "lo"},
            capture_output=True,
            text=True,
            cwd=folder,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        found[ranks] = torch.load(results)
    return found


def test_updates_are_those_of_one_process(runs):
    one, two = runs[1], runs[2]
    assert one["num_tokens"] == [12.0, 12.0]
    assert two["num_tokens"] == [6.0, 6.0], "the mean over ranks, since gradients are averaged"
    torch.testing.assert_close(two["norms"], one["norms"], rtol=1e-6, atol=0)
    for name, weight in one["weights"].items():
        torch.testing.assert_close(two["weights"][name], weight, rtol=0, atol=1e-5)


def test_the_norm_takes_one_collective_and_clipping_none(runs):
    one, two = runs[1], runs[2]
    assert len(one["clipped"]) > 20
    assert (one["collectives"], two["collectives"]) == (0, 1)
    assert two["clipping"] == 0
    assert abs(two["norm"] - one["norm"]) < 1e-6 * one["norm"]
    for name, gradient in one["clipped"].items():
        torch.testing.assert_close(two["clipped"][name], gradient, rtol=1e-4, atol=1e-6)
    clipped = torch.stack([g.norm() for g in two["clipped"].values()]).norm()
    assert abs(float(clipped) - 0.5 * one["norm"]) < 1e-4 * one["norm"]
