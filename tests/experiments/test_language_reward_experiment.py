"""The ablation of the language reward: the shipped sweep on a tiny policy, and its report."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_sweep import ROOT

from experiments import page
from experiments.compose import merge
from experiments.curves import draw
from experiments.language_reward.code import __main__ as code
from experiments.points import read_sweep
from experiments.report import as_table
from experiments.sweep import run_sweep
from r1lit import cli

SWEEPS = [Path(f"experiments/{name}/sweep.yaml") for name in ("language_reward", "third_language")]
ALL = [*SWEEPS, Path("experiments/language_reward/code/sweep.yaml")]


def tiny(policy: Path) -> dict:
    world = "r1lit.worlds.WorldCountdown"
    return {
        "model": {
            "init_args": {
                "policy": str(policy),
                "sampling": {"max_tokens": 12},
                "train_batch_size": 4,
                "micro_batch_tokens": 1024,
            }
        },
        "data": {
            "init_args": {
                "train": [{"class_path": world, "init_args": {"num_problems": 4}}],
                "validation": [
                    {"class_path": world, "init_args": {"split": "held_out", "num_problems": 2}}
                ],
                "prompts": {"template": "r1_zero"},  # the tiny policy has no chat template
                "rollout": {"prompts_per_iteration": 2, "group_size": 2},
                "num_iterations": 2,
                "evaluation": {"num_samples": 2},
            }
        },
        "trainer": {"val_check_interval": 1},
    }


@pytest.fixture(params=SWEEPS, ids=lambda path: path.parent.name)
def sweep(request, tmp_path, policy, monkeypatch):
    monkeypatch.chdir(ROOT)
    shipped = read_sweep(request.param)
    return replace(
        shipped, base=merge(shipped.base, tiny(policy)), seeds=[0], output=tmp_path / "out"
    )


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.parent.name)
def test_variants_differ_in_the_weight_alone(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    shipped = read_sweep(path)
    both = [shipped.point(variant, 0).config for variant in ("with", "without")]
    rewards = [config["model"]["init_args"].pop("rewards") for config in both]
    without = [reward["init_args"].pop("weight") for reward in rewards[1]]
    assert [reward["init_args"].pop("weight") for reward in rewards[0]] == [1.0, 1.0, 1.0]
    assert without == [1.0, 0.0, 1.0] and rewards[0] == rewards[1]
    texts = [json.dumps(config).replace("without", "with") for config in both]
    assert texts[0] == texts[1]


def test_the_panels_part_mathematics_code_and_logic():
    def response(source: str, value: float, consistency: float) -> dict:
        rewards = {"accuracy": value, "language_consistency": consistency}
        return {"source": source, "value": value, "rewards": rewards}

    asked = [("countdown", 1.0, 0.9), ("chain", 0.0, 0.7), ("programs", 1.0, 0.5)]
    asked.append(("puzzles", 0.0, 0.25))
    found = {
        name: [value(r) for r in (response(*one) for one in asked) if is_of(r["source"])]
        for name, (is_of, value) in code.MEASURES.items()
    }
    assert found == {
        "language consistency, mathematics": [0.9, 0.7],
        "language consistency, code": [0.5],
        "language consistency, logic": [0.25],
        "pass@1, mathematics": [1.0, 0.0],
        "pass@1, code": [1.0],
        "pass@1, logic": [0.0],
    }


@pytest.mark.slow
def test_both_variants_measure_consistency_and_one_is_paid_for_it(sweep):
    def launch(arguments: list[str], log: Path) -> int:
        cli.main(arguments)
        return 0

    assert run_sweep(sweep, launch=launch) == []
    results = sweep.results()
    assert [result["variant"] for result in results] == ["with", "without"]
    for result, weight in zip(results, (1.0, 0.0), strict=True):
        folder = sweep.output / result["variant"] / "seed-0"
        for text in (folder / "metrics.jsonl").read_text().splitlines():
            line = json.loads(text)
            parts = [line[f"train/reward/{name}"] for name in ("accuracy", "format")]
            paid = weight * line["train/reward/language_consistency"]
            assert line["train/reward"] == pytest.approx(sum(parts) + paid, abs=1e-5)
        assert all("language_consistency" in e["rewards"] for e in result["evaluations"])
        assert len(result["evaluations"]) == 3
    header, _, *rows = as_table(results).splitlines()
    column = header.split(" | ").index("language consistency")
    for row, result in zip(rows, results, strict=True):
        first, last = (result["evaluations"][i]["rewards"]["language_consistency"] for i in (0, -1))
        assert row.split(" | ")[column] == f"{first:.3f} → {last:.3f}"
    axes = draw(results).axes
    assert axes[0].get_ylabel() == "words in the question's language"
    assert len(axes) == 4 and len(axes[0].lines) == 2


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.parent.name)
def test_its_readme_has_a_place_for_the_report(path):
    text = (ROOT / path.parent / "README.md").read_text()
    assert "filled" in page.fill_in(text, "filled")
