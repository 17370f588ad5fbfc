"""The study of prompts: the shipped suite on a tiny policy, its table, and that it goes on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tiny_sweep import ROOT

from experiments.compose import merge
from experiments.page import fill_in
from experiments.prompts.__main__ import run
from experiments.prompts.report import as_table, compare
from experiments.prompts.suite import read_suite
from r1lit import cli, jsonl

FOLDER = Path("experiments/prompts")


def test_every_prompt_asks_the_same_problems_and_shows_none_of_them(monkeypatch):
    monkeypatch.chdir(ROOT)
    suite = read_suite(FOLDER / "small_world.yaml")
    assert list(suite.policies) == ["base", "zero", "r1"] and len(suite.prompts) == 10
    asked = []
    for prompt in suite.prompts:
        init_args = suite.config("base", prompt, 0)["data"]["init_args"]
        for source in init_args["test"]:
            source["init_args"].pop("chinese", None)
        asked.append(init_args["test"])
        for source in init_args.get("shots", {}).get("init_args", {}).get("problems", []):
            assert source["init_args"]["split"] == "train"
    assert all(test == asked[0] for test in asked)
    assert "filled" in fill_in((ROOT / FOLDER / "README.md").read_text(), "filled")
    assert len(read_suite(FOLDER / "gsm8k.yaml").prompts) == 6


@pytest.mark.slow
def test_it_runs_tells_and_goes_on(tmp_path, policy, monkeypatch):
    monkeypatch.chdir(ROOT)
    shipped = read_suite(FOLDER / "small_world.yaml")
    world = {"class_path": "r1lit.worlds.WorldChain", "init_args": {"split": "held_out"}}
    world["init_args"]["num_problems"] = 3
    small = {
        "model": {"init_args": {"policy": str(policy), "sampling": {"max_tokens": 4}}},
        "data": {"init_args": {"evaluation": {"num_samples": 2}, "test": [world]}},
    }
    prompts = {name: shipped.prompts[name] for name in ("zero-shot", "1-shot", "step-by-step")}
    suite = replace(
        shipped, evaluation=merge(shipped.evaluation, small), policies={"tiny": {}},
        prompts=prompts, seeds=[0, 1], output=tmp_path / "out", report=tmp_path / "table.md",
    )  # fmt: skip
    launched: list[str] = []

    def launch(arguments: list[str], log: Path) -> int:
        launched.append(str(log))
        cli.main(arguments)
        return 0

    assert run(suite, [0], launch) == [] and len(launched) == 3
    assert run(suite, [0, 1], launch) == [] and len(launched) == 6
    table = as_table(compare(suite))
    rows = table.splitlines()
    assert [row.split(" | ")[1:3] for row in rows[2:5]] == [[p, "2"] for p in prompts]
    assert rows[3].split(" | ")[4].startswith("+0.000")
    assert "Holm's correction is for 2 comparisons" in rows[-1]
    assert table in suite.report.read_text() and (tmp_path / "out.png").exists()
    kept = jsonl.read(tmp_path / "results.jsonl")
    assert [(r["prompt"], r["seed"]) for r in kept] == [(p, s) for p in prompts for s in (0, 1)]
    assert kept[0]["pass_at_1"] == suite.reports("tiny", "zero-shot")[0]["pass_at_1"]
