"""GRPO against others: the shipped sweep on a tiny policy, each variant what its name says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_sweep import ROOT, TINY

from experiments import page
from experiments.compose import merge
from experiments.points import read_sweep
from experiments.report import as_table
from experiments.sweep import run_sweep
from r1lit import cli

SWEEP = Path("experiments/algorithms/sweep.yaml")


def test_all_variants_draw_and_update_alike(monkeypatch):
    monkeypatch.chdir(ROOT)
    shipped = read_sweep(SWEEP)
    assert len(shipped.variants) == 8 and len(shipped.seeds) == 5
    configs = [shipped.point(variant, 0).config for variant in shipped.variants]
    for key in ("sampling", "train_batch_size", "max_grad_norm", "optimizer", "lr_scheduler"):
        values = [config["model"]["init_args"][key] for config in configs]
        assert all(value == values[0] for value in values), key
    paid = [[r["class_path"] for r in c["model"]["init_args"]["rewards"]] for c in configs]
    assert all(names == paid[0] for names in paid)
    assert all(config["data"] == configs[0]["data"] for config in configs)


@pytest.mark.slow
def test_every_variant_runs_and_is_reported(tmp_path, policy, monkeypatch):
    monkeypatch.chdir(ROOT)
    shipped = read_sweep(SWEEP)
    reward = [{"class_path": "tiny.DigitShare"}]  # which groups of a random policy differ in
    change = {"model": {"init_args": {"policy": str(policy), "rewards": reward}}}
    small = merge(merge(shipped.base, TINY), {"model": {"init_args": {"from_scratch": False}}})
    tiny = {**TINY["model"]["init_args"], "from_scratch": False}
    variants = {
        name: [*fragments, change, {"model": {"init_args": tiny}}]
        for name, fragments in shipped.variants.items()
    }
    sweep = replace(shipped, base=small, variants=variants, seeds=[0], output=tmp_path / "out")

    def launch(arguments: list[str], log: Path) -> int:
        cli.main(arguments)
        return 0

    assert run_sweep(sweep, launch=launch) == []
    results = sweep.results()
    assert [result["variant"] for result in results] == list(shipped.variants)
    assert all(name in as_table(results) for name in shipped.variants)
    logged = {
        name: json.loads(
            (sweep.output / name / "seed-0" / "metrics.jsonl").read_text().splitlines()[0]
        )
        for name in shipped.variants
    }
    assert len({line["train/reward"] for line in logged.values()}) == 1, "one first rollout"
    assert {n for n, line in logged.items() if "train/kl_in_reward" in line} == {
        "rloo",
        "reinforce-pp",
    }
    assert {n for n, line in logged.items() if "train/num_pairs" in line} == {"dpo"}


def test_its_readme_has_a_place_for_the_report():
    text = (ROOT / SWEEP.parent / "README.md").read_text()
    assert "filled" in page.fill_in(text, "filled")
