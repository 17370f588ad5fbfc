"""The study of prompts: the shipped suite on a tiny policy, its table, and that it goes on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from tiny_sweep import ROOT

from experiments.compose import merge
from experiments.fingerprint import begin
from experiments.launch import held
from experiments.page import fill_in
from experiments.prompts.__main__ import main, run
from experiments.prompts.report import as_table, compare
from experiments.prompts.suite import CONFIG, read_suite
from r1lit import cli
from r1lit.files import read_records

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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": 0}, "seeds: 0 is not a list"),
        ({"seeds": ["a"]}, "seeds: .'a'. is not a list of integers from 0"),
        ({"prompts": {}}, "prompts: {} is not a mapping"),
        ({"prompts": ["a"]}, r"prompts: \['a'\] is not a mapping"),
        ({"prompts": {"a/b": {}}}, "prompts: 'a/b' cannot name a folder"),
        ({"prompts": {"..": {}}}, r"prompts: '\.\.' cannot name a folder"),
        ({"policies": {1: {}}}, "policies: 1 cannot name a folder"),
        ({"policies": {"base": 3}}, "policies.base: 3 is not a mapping of keys"),
        ({"prompts": {"a": {"policies": None}}}, "prompts.a.policies: None is not a list"),
        ({"prompts": {"a": {"policies": [["base"]]}}}, "prompts.a.policies: .* is not a list"),
        ({"output": None}, "output: None is not a path"),
        ({"report": ["a.md"]}, "report: .* is not a path"),
        ({"evaluation": "a.yaml"}, "evaluation: 'a.yaml' is not a list"),
        ({"prompt": {}}, "unknown key 'prompt'"),
        ({1: {}}, "unknown key 1"),
        (
            {"prompts": {"plain": None, "system": {"policies": ["r11"]}}},
            r"prompts.system.policies: \['r11'\] is not a list of some of the suite's: base, r1",
        ),
    ],
)
def test_a_suite_that_would_do_something_else_is_refused(tmp_path, monkeypatch, change, message):
    monkeypatch.chdir(ROOT)
    content = yaml.safe_load((FOLDER / "small_world.yaml").read_text())
    path = tmp_path / "suite.yaml"
    path.write_text(yaml.safe_dump(content | change))
    with pytest.raises(ValueError, match=message):
        read_suite(path)


def test_seeds_that_are_none_are_named(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    assert main([str(FOLDER / "small_world.yaml"), "--seeds", "0,x"]) == 2
    assert "--seeds: '0,x' is not integers from 0" in capsys.readouterr().err


def test_reports_are_of_this_very_suite_and_of_every_seed(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    suite = replace(read_suite(FOLDER / "small_world.yaml"), output=tmp_path, seeds=[0])
    prompt = next(iter(suite.prompts))
    for seed in (0, 5):
        folder = suite.folder("base", prompt, seed)
        begin(folder, CONFIG, suite.config("base", prompt, seed))
        (folder / "report.json").write_text(f'{{"seed": {seed}}}')
    assert suite.reports("base", prompt) == {0: {"seed": 0}, 5: {"seed": 5}}
    changed = replace(suite, evaluation=merge(suite.evaluation, {"model": {"init_args": {"x": 1}}}))
    assert changed.reports("base", prompt) == {}


@pytest.mark.slow
def test_it_runs_tells_and_goes_on(tmp_path, policy, monkeypatch, capsys):
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

    with held(tmp_path / "out/tiny/1-shot/.seed-0.lock"):  # of another process, which makes it
        assert run(suite, [0], launch) == [] and len(launched) == 2
    assert "tiny 1-shot seed 0  left to another process" in capsys.readouterr().out
    assert run(suite, [0], launch) == [] and len(launched) == 3
    assert run(suite, [0, 1], launch) == [] and len(launched) == 6
    table = as_table(compare(suite))
    rows = table.splitlines()
    assert [row.split(" | ")[1:3] for row in rows[2:5]] == [[p, "2"] for p in prompts]
    assert rows[3].split(" | ")[4].startswith("+0.000")
    assert "Holm's correction is for 2 comparisons" in rows[-1]
    assert table in suite.report.read_text() and (tmp_path / "out.png").exists()
    kept = read_records(tmp_path / "results.jsonl")
    assert [(r["prompt"], r["seed"]) for r in kept] == [(p, s) for p in prompts for s in (0, 1)]
    assert all(len(r["shares"]) == 3 for r in kept), "by problem, to be paired again"
    assert kept[0]["pass_at_1"] == suite.reports("tiny", "zero-shot")[0]["pass_at_1"]
