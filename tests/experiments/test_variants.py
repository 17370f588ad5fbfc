"""Stages left out of R1's pipeline: what a variant makes and reads, and differences by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from tiny import ROOT

from experiments import page
from experiments.pipeline import Pipeline, read_pipeline
from experiments.r1.stages import COLUMNS
from experiments.variants import against_zero, compose, differences, main, pipeline_of, summarise
from r1lit.cli import composition

SUITE = Path("experiments/stages_skipped/variants.yaml")


@pytest.fixture
def pipelines(tmp_path, monkeypatch) -> dict[str, Pipeline]:
    monkeypatch.chdir(ROOT)
    suite = composition.read(str(SUITE))
    return {name: pipeline_of(suite, tmp_path, name, 1) for name in suite["variants"]}


@pytest.mark.long
def test_variants_make_what_they_change_and_read_the_rest(pipelines, tmp_path):
    whole = {step.name: step for step in read_pipeline(Path("experiments/r1/pipeline.yaml")).steps}
    finished = str(ROOT / "runs" / "r1-seed-1")
    for name, pipeline in pipelines.items():
        assert pipeline.run == tmp_path / name / "seed-1" and pipeline.seed == 1
        made = [step.name for step in pipeline.steps]
        for step in pipeline.steps:
            assert all(path.is_relative_to(pipeline.run) for path in step.writes)
            text = json.dumps([step.configs, step.arguments])
            assert '"runs/r1' not in text, "every path is of this run or of the finished one"
            for other in whole:  # what is made here is read here
                if other in made:
                    assert f"{finished}/{other}/" not in text
            for path in step.reads:
                own, other = path.is_relative_to(pipeline.run), str(path).startswith(finished)
                assert own or other or path.parts[0] == "models"
            assert all(config["seed_everything"] == 1 for config in step.configs)
    assert {n: p.steps[0].name for n, p in pipelines.items()} == {
        "no-cold-start": "dev2",
        "no-rl-1": "rejection_sampling",
        "no-second-sft": "responses",
        "cold-start-quarter": "dev1",
        "cold-start-half": "dev1",
        "cold-start-double": "few_shot",
    }
    r1 = next(step for step in pipelines["no-second-sft"].steps if step.name == "r1")
    assert r1.configs[0]["model"]["init_args"]["policy"] == f"{finished}/dev2/policy"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"dev9": None}, "has no step 'dev9'"),
        ({"dev1": ["a"]}, "variants: step dev1: .'a'. is not a mapping"),
        ({"dev1": {"set": [1]}}, "step dev1: set: .1. is not a mapping"),
        ({"dev1": {"config": "a.yaml"}}, "step dev1: config: 'a.yaml' is not a list"),
    ],
)
def test_a_change_of_a_step_that_cannot_be_made_is_named(changes, says, monkeypatch):
    monkeypatch.chdir(ROOT)
    with pytest.raises(ValueError, match=says):
        compose(Path("experiments/r1/pipeline.yaml"), changes, Path("runs/r1"))


def test_what_a_pipeline_moves_is_moved_in_its_variants_too(monkeypatch):
    monkeypatch.chdir(ROOT)
    pipeline = Path("experiments/r1/reasoning.yaml")
    content = compose(pipeline, {"dev1": None, "dev2": None}, Path("runs/r1_reasoning-seed-1"))
    dev1, dev2 = (step["set"]["model"]["init_args"]["policy"] for step in content["steps"])
    assert dev1 == "runs/pretrain_reasoning/policy" and dev2 == "runs/r1_reasoning/dev1/policy"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"output": None}, "output: None is not a path"),
        ({"variants": ["a"]}, "variants: ['a'] is not a mapping"),
        ({"variants": {"a": {}}}, "variants.a: steps: None is not a mapping"),
        ({"variants": {"a": {"steps": ["dev1"]}}}, "variants.a: steps: ['dev1'] is not a mapping"),
        ({"variants": {"a": ["dev1"]}}, "variants.a: ['dev1'] is not a mapping"),
        ({"variants": {"..": {}}}, "variants: '..' cannot name a folder"),
        ({"variants": {"a": {"against": ["b"], "steps": {"dev1": {}}}}}, "['b'] is no list of all"),
        ({"variants": {"a": {"against": "b", "steps": {"dev1": {}}}}}, "'b' is no list of all"),
        ({"variants": {"a": {"besides": [], "steps": {"dev1": {}}}}}, "unknown key 'besides'"),
        ({"seeds": [1, 1]}, "each once"),
    ],
)
def test_a_suite_without_what_it_needs_is_refused(tmp_path, change, says, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    content = yaml.safe_load(SUITE.read_text()) | change
    path = tmp_path / "suite.yaml"
    path.write_text(yaml.safe_dump({k: v for k, v in content.items() if v is not None}))
    assert main(path, ["--report"]) == 2
    assert says in capsys.readouterr().err


def row(name: str, reasoning: float) -> dict:
    record = {"name": name, "cons_k": 16, "settings": {}}
    for column in COLUMNS:
        record |= {column.key: 0.5, f"{column.key}_se": 0.01}
    return record | {"reasoning_pass_at_1": reasoning}


def test_differences_are_paired_by_seed():
    summaries = [
        {"stages": [row("all stages: r1", whole), row("no-rl-1: r1", less), row("x: dev1", 0.1)]}
        for whole, less in ((0.9, 0.8), (0.8, 0.68))
    ]
    lines = differences(summaries, {}).splitlines()
    assert len(lines) == 2 + 6 + 2  # the one stage that both have, six measures; the rule
    assert lines[2].startswith(
        "| no-rl-1: r1 | all stages | reasoning_pass_at_1 | -0.110 (-0.237 to +0.017) |"
    )
    assert differences(summaries[:1], {}) == ""


def test_a_variant_is_compared_with_those_it_names_and_r1_with_its_zero():
    """Of a variant without a zero of its own, with that of what it is compared with."""
    names = ("all stages: zero", "all stages: r1", "a: zero", "a: r1", "b: r1")
    values = ((0.99, 0.8, 0.9, 0.88, 0.95), (0.97, 0.84, 0.92, 0.86, 0.95))
    summaries = [{"stages": list(map(row, names, own))} for own in values]
    lines = differences(summaries, {"b": ["a", "all stages"]}).splitlines()
    assert any(line.startswith("| b: r1 | a | reasoning_pass_at_1 | +0.080 (") for line in lines)
    assert any(
        line.startswith("| b: r1 | all stages | reasoning_pass_at_1 | +0.130") for line in lines
    )
    zeros = against_zero(summaries, {"b": ["a", "all stages"]})
    assert "| all stages | all stages: zero | reasoning_pass_at_1 | -0.160 (" in zeros
    assert "| a | a: zero | reasoning_pass_at_1 | -0.040 (" in zeros
    assert "| b | a: zero | reasoning_pass_at_1 | +0.040 (" in zeros


@pytest.mark.slow
def test_a_variant_runs_on_a_finished_run_and_is_reported(tmp_path, monkeypatch, capsys):
    """A pipeline of copies: its second step is skipped, and the third reads the first's output."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "start.json").write_text("{}")
    copy = {"module": "json.tool", "stage": "copy"}
    steps = [
        {"name": n, **copy, "arguments": [a, b], "reads": [a], "writes": [b]}
        for n, a, b in (
            ("one", "start.json", "runs/r1/one.json"),
            ("two", "runs/r1/one.json", "runs/r1/two.json"),
            ("three", "runs/r1/two.json", "runs/r1/three.json"),
        )
    ]
    pipeline = {"run": "runs/r1", "seed": 0, "steps": steps}
    (tmp_path / "pipeline.yaml").write_text(yaml.safe_dump(pipeline))
    one = "runs/r1/one.json"
    skipped = {"three": {"arguments": [one, "runs/r1/three.json"], "reads": [one]}}
    suite = {
        "pipeline": "pipeline.yaml",
        "output": "runs/skipped",
        "seeds": [0],
        "variants": {"no-two": {"steps": skipped}},
    }
    (tmp_path / "suite.yaml").write_text(yaml.safe_dump(suite))
    (tmp_path / "README.md").write_text(f"{page.START}\n{page.END}\n")
    (tmp_path / "runs/r1").mkdir(parents=True)
    (tmp_path / "runs/r1/one.json").write_text('{"one": 1}')
    assert main(Path("suite.yaml"), ["--readme", "."]) == 2  # made, and nothing is evaluated
    assert "no stage of a variant is evaluated yet" in capsys.readouterr().err
    assert json.loads((tmp_path / "runs/skipped/no-two/seed-0/three.json").read_text()) == {
        "one": 1
    }
    assert not (tmp_path / "runs/r1/three.json").exists()
    folder = tmp_path / "runs/skipped/no-two/seed-0/eval/r1"
    folder.mkdir(parents=True)
    settings = {"sampling": {"temperature": 0.6}, "seed": 0}
    (folder / "report.json").write_text(json.dumps({"num_samples": 1, "settings": settings}))
    record = {"uid": "a", "sample": 0, "groups": {"kind": "reasoning"}, "value": 1.0}
    record |= {"canonical": "4", "num_tokens": 3, "eval_metrics": {}}
    (folder / "responses.jsonl").write_text(json.dumps(record) + "\n")
    assert main(Path("suite.yaml"), ["--readme", ".", "--report"]) == 0
    assert "| no-two: r1 | 1.000 |" in (tmp_path / "README.md").read_text()
    assert summarise(suite, tmp_path / "runs/skipped", 0)["stages"][0]["name"] == "no-two: r1"
