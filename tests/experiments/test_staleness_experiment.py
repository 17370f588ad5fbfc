"""The study of staleness: the shipped sweep on a tiny policy, each variant as stale as named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_sweep import ROOT, TINY

from experiments import page
from experiments.compose import merge
from experiments.points import read_sweep
from experiments.sweep import run_sweep
from r1lit import cli

SWEEP = Path("experiments/staleness/sweep.yaml")
UPDATES = 2  # of an iteration: 2 x 4 rows in minibatches of 4


@pytest.mark.slow
def test_each_variant_is_as_stale_as_its_name_says(tmp_path, policy, monkeypatch):
    monkeypatch.chdir(ROOT)
    shipped = read_sweep(SWEEP)
    tiny = {
        "model": {"init_args": {"policy": str(policy), "from_scratch": False}},
        "data": {"init_args": {"num_iterations": 6}},
        "trainer": {"val_check_interval": 6},
    }
    small = merge(merge(shipped.base, TINY), tiny)
    small["model"]["init_args"]["train_batch_size"] = 4
    sweep = replace(shipped, base=small, seeds=[0], output=tmp_path / "out")

    def launch(arguments: list[str], log: Path) -> int:
        cli.main(arguments)
        return 0

    assert run_sweep(sweep, launch=launch) == []
    results = {result["variant"]: result for result in sweep.results()}
    assert len(results) == 8
    rewards = {}
    for variant in results:
        k = int(variant[1])
        path = sweep.output / variant / "seed-0" / "metrics.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        ages = [line.get("train/staleness/max") for line in lines]
        assert ages == [UPDATES * min(i, k) if k else None for i in range(6)]
        rewards[variant] = [line["train/reward"] for line in lines]
    for correction in ("as-drawn", "corrected"):
        first = {tuple(rewards[f"k{k}+{correction}"][:1]) for k in (0, 1, 2, 4)}
        assert len(first) == 1, "all begin with the base's rollout"


def test_its_readme_has_a_place_for_the_report():
    text = (ROOT / SWEEP.parent / "README.md").read_text()
    assert "filled" in page.fill_in(text, "filled")
