"""The study of LoRA's rank: the shipped sweep on a tiny policy, each variant of its rank."""

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

SWEEP = Path("experiments/lora_ranks/sweep.yaml")


@pytest.mark.slow
def test_each_variant_trains_what_its_name_says(tmp_path, policy, monkeypatch):
    monkeypatch.chdir(ROOT)
    shipped = read_sweep(SWEEP)
    of_the_fixture = {"model": {"init_args": {"policy": str(policy), "from_scratch": False}}}
    small = merge(merge(shipped.base, TINY), of_the_fixture)
    sweep = replace(shipped, base=small, seeds=[0], output=tmp_path / "out")

    def launch(arguments: list[str], log: Path) -> int:
        cli.main(arguments)
        return 0

    assert run_sweep(sweep, launch=launch) == []
    assert [result["variant"] for result in sweep.results()] == list(shipped.variants)
    for variant in shipped.variants:
        run = sweep.output / variant / "seed-0"
        first = json.loads((run / "metrics.jsonl").read_text().splitlines()[0])
        rate = first["train/learning_rate"]
        if variant == "all":
            full_rate = rate
            continue
        settings = json.loads((run / "policy" / "adapter_config.json").read_text())
        assert settings["r"] == int(variant.removeprefix("rank-"))
        assert settings["lora_alpha"] == 32 and len(settings["target_modules"]) == 2 * 7
        assert rate == pytest.approx(10 * full_rate)


def test_its_readme_has_a_place_for_the_report():
    text = (ROOT / SWEEP.parent / "README.md").read_text()
    assert "filled" in page.fill_in(text, "filled")
