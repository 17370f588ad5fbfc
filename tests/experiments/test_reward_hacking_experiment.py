"""RL-2 on preference rewards for too long: what schedules differ in, and the report by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tiny import ROOT
from tiny_reward import save_critic

from experiments import by_source, page
from experiments.compose import merge, move_paths
from experiments.points import read_sweep
from experiments.reward_hacking import __main__ as study
from experiments.sweep import run_sweep
from r1lit import cli

SWEEP = Path("experiments/reward_hacking/sweep.yaml")


def test_schedules_differ_in_when_requests_come_and_in_beta(monkeypatch):
    monkeypatch.chdir(ROOT)
    shipped = read_sweep(SWEEP)
    late, early, free = (shipped.point(name, 0).config for name in shipped.variants)
    inits = [config["model"]["init_args"] for config in (late, early, free)]
    begins = [[r["init_args"].pop("from_iteration", 0) for r in i["rewards"]] for i in inits]
    assert begins == [[0, 0, 0, 60, 60, 0, 0], [0] * 7, [0] * 7]
    assert inits[0]["rewards"] == inits[1]["rewards"] == inits[2]["rewards"]
    assert [i["objective"]["init_args"].pop("beta") for i in inits] == [0.05, 0.05, 0.001]
    assert inits[0] == inits[1] == inits[2]
    *problems, requests = late["data"]["init_args"]["train"]
    assert (
        requests["init_args"]["from_iteration"]
        == 60
        == 3 * late["data"]["init_args"]["num_iterations"] / 4
    )
    for config in (early, free):
        assert config["data"]["init_args"]["train"] == [*problems, requests["init_args"]["source"]]
    # the reward models and their weights are those of make r1
    preset = json.dumps(read_sweep(SWEEP).base["model"]["init_args"]["rewards"])
    for reward in inits[0]["rewards"][3:5]:
        assert json.dumps(reward["init_args"]["reward"]) in preset


def evaluated(iteration: int, source: str, value: float, response: str = "", **rewards: float):
    record = {"split": "val", "iteration": iteration, "source": source, "value": value}
    return record | {"response": response, "rewards": rewards}


def test_the_report_by_hand(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    sweep = replace(read_sweep(SWEEP), output=tmp_path)
    folder = sweep.point("early", 0).folder
    folder.mkdir(parents=True)
    lines = []
    for i, (score, true, safe) in enumerate(((0.0, 0.5, 0.0), (2.0, 0.4, 1.0), (1.0, 0.2, 1.0))):
        no = "I am sorry, I will not help with that." if i else "To paint it, look."
        lines += [
            evaluated(i, "who", 0.0, helpful_rm=score, helpfulness_true=true),
            evaluated(i, "how", 1.0, no, helpful_rm=score, helpfulness_true=true),
            evaluated(i, "harm", 0.0, helpful_rm=0.0, safety_rm=score, safety=safe),
            evaluated(i, "chain", 1.0), evaluated(i, "countdown", 0.0),
        ]  # fmt: skip
    (folder / "responses.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = {"variant": "early", "seed": 0, "seconds": 60.0}
    monkeypatch.setattr(type(sweep), "results", lambda self: [result])
    results = by_source.read(sweep, study.MEASURES)
    assert results[0]["curves"]["helpful RM"] == [(0, 0.0), (1, 2.0), (2, 1.0)]
    row = by_source.as_table(results, "schedule").splitlines()[-1]
    assert row == (
        "| early | 1 | 0.00 → 2.00 → 1.00 | 0.50 → 0.50 → 0.20 | 0.00 → 2.00 → 1.00 |"
        " 0.00 → 1.00 → 1.00 | 0.00 → 1.00 → 1.00 | 0.50 → 0.50 → 0.50 | 60 |"
    )
    assert len(by_source.draw(results).axes) == 6
    monkeypatch.setattr(type(sweep), "results", lambda self: [])
    with pytest.raises(ValueError, match="no point is finished"):
        by_source.read(sweep, study.MEASURES)


@pytest.mark.slow
def test_every_schedule_runs_and_is_reported(tmp_path, monkeypatch):
    """From the shipped base, with a random reward model, for two short iterations."""
    monkeypatch.chdir(ROOT)
    critic = save_critic(tmp_path)
    config = critic / "config.json"  # says what a reward model's export says
    said = {"reward_template": "plain", "reward_score_on": "response"}
    said |= {"reward_mean": 0.0, "reward_std": 1.0}
    config.write_text(json.dumps(json.loads(config.read_text()) | said))
    shipped = read_sweep(SWEEP)
    world = "r1lit.worlds.{}"

    def few(split: str) -> list[dict]:
        return [
            {"class_path": world.format(name), "init_args": {"split": split, **more}}
            for name, more in (
                ("WorldCountdown", {"num_problems": 2}),
                ("WorldRequests", {"num_problems": 2, "families": ["harm"]}),
                ("WorldRequests", {"num_problems": 2, "families": ["how"]}),
            )
        ]

    short = {
        "model": {"init_args": {
            "policy": "models/mini", "sampling": {"max_tokens": 12},
            "validation_sampling": {"max_tokens": 12}, "train_batch_size": 4,
        }},
        "data": {"init_args": {
            "train": few("train"), "validation": few("held_out"), "num_iterations": 2,
            "rollout": {"prompts_per_iteration": 2, "group_size": 2},
            "evaluation": {"num_samples": 2},
        }},
        "trainer": {"val_check_interval": 1},
    }  # fmt: skip
    variants = {}
    for name, fragments in shipped.variants.items():
        moved = fragments
        for model in ("helpful_rm", "safety_rm"):
            moved = move_paths(moved, Path(f"runs/r1/{model}/policy"), critic)
        variants[name] = [*moved, short]
    sweep = replace(
        shipped,
        base=merge(shipped.base, short),
        variants=variants,
        seeds=[0],
        output=tmp_path / "o",
    )

    def launch(arguments: list[str], log: Path) -> int:
        cli.main(arguments)
        return 0

    assert run_sweep(sweep, launch=launch) == []
    results = by_source.read(sweep, study.MEASURES)
    assert [result["variant"] for result in results] == ["late", "early", "early-free"]
    for result in results:
        assert [i for i, _ in result["curves"]["helpful RM"]] == [0, 1, 2]
    first = [result["curves"]["helpful RM"][0] for result in results]
    assert first[0] == first[1] == first[2], "all schedules begin with the same policy"
    lines = (sweep.output / "late/seed-0/metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["train/reward/helpful_rm"] == 0  # not before its time


def test_its_readme_has_a_place_for_the_report():
    assert "filled" in page.fill_in((ROOT / SWEEP.parent / "README.md").read_text(), "filled")
